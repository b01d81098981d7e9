"""Where a model is asked, and that source code leaves this machine only after somebody agreed to that."""

import ssl

import pytest

from kernel_lsp.config.load import load_settings
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.model.endpoint import allow_host, allowed_hosts, endpoint_at, find_endpoint, is_loopback, transport
from kernel_lsp.model.errors import ConsentError, NoServerError


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def settings(**said):
    return load_settings(overrides={f"model.{name}": value for name, value in said.items()}, environment={})[0]


def test_another_machine_needs_consent_that_names_it():
    wanted = settings(endpoint="https://models.example.org/v1", name="m")
    with pytest.raises(ConsentError) as caught:
        find_endpoint(wanted)
    assert "models.example.org" in caught.value.message
    assert "kernel-lsp model allow models.example.org" in (caught.value.fix or "")
    allow_host("models.example.org")
    assert find_endpoint(wanted).url == "https://models.example.org"
    with pytest.raises(ConsentError):
        find_endpoint(settings(endpoint="https://example.org/v1", name="m"))
    allow_host("models.example.org", allowed=False)
    assert allowed_hosts() == ()


def test_a_projects_settings_cannot_give_consent(tmp_path):
    project = tmp_path / "pyproject.toml"
    said = f'[tool.kernel-lsp]\npaths.data = "{tmp_path}"\nmodel = {{endpoint = "https://example.org", name = "m"}}\n'
    project.write_text(said)
    (tmp_path / "allowed-hosts.json").write_text('{"hosts": ["example.org"]}')
    with pytest.raises(ConsentError):
        find_endpoint(load_settings(tmp_path, environment={})[0])


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:8000/v1", "http://[::1]:8000", "http://localhost:8000/", "unix:/run/x"]
)
def test_this_machine_needs_none(address):
    assert find_endpoint(settings(endpoint=address, name="m")).local


@pytest.mark.parametrize("host", ["127.0.0.1.example.org", "localhost.example.org", "10.0.0.1", "0.0.0.0", ""])
def test_what_only_looks_like_this_machine_is_another(host):
    assert not is_loopback(host)


def test_credentials_in_an_address_do_not_pass_for_its_host():
    with pytest.raises(ConsentError, match=r"example\.org"):
        find_endpoint(settings(endpoint="http://localhost@example.org/v1", name="m"))


@pytest.mark.parametrize("host", ["https://example.org", "a/b", ""])
def test_consent_is_for_a_host(host):
    with pytest.raises(ConfigurationError):
        allow_host(host)


def test_the_key_comes_from_the_environment(monkeypatch):
    wanted = settings(endpoint="http://localhost:8000", name="m", key_variable="MODEL_KEY")
    with pytest.raises(ConfigurationError, match="MODEL_KEY"):
        find_endpoint(wanted)
    monkeypatch.setenv("MODEL_KEY", "secret")
    assert find_endpoint(wanted).key == "secret"


def test_the_model_of_an_endpoint_must_be_named():
    with pytest.raises(ConfigurationError, match=r"model\.name"):
        find_endpoint(settings(endpoint="http://localhost:8000"))


@pytest.mark.parametrize("address", ["http://localhost:8000", "http://localhost:8000/", "http://localhost:8000/v1/"])
def test_an_address_is_taken_with_and_without_its_version(address):
    assert endpoint_at(address, "m").url == "http://localhost:8000"


@pytest.mark.asyncio
async def test_the_server_that_runs_here_is_used(fake, keep):
    with pytest.raises(NoServerError, match="kernel-lsp model serve"):
        find_endpoint(settings())
    server = keep(fake, models=("tiny", "other"), profile="drkernel-14b", context=4096)
    found = find_endpoint(settings())
    assert (found.profile, found.context) == ("drkernel-14b", 4096)
    assert (found.model, found.uds, found.key, found.folder) == ("tiny", fake.socket, fake.key, server.folder)
    assert find_endpoint(settings(name="other")).model == "other"
    with pytest.raises(NoServerError, match=r"serves `third`; they serve tiny, other"):
        find_endpoint(settings(name="third"))
    keep(fake, name="second", models=("second",))
    with pytest.raises(NoServerError, match="Several"):
        find_endpoint(settings())
    assert find_endpoint(settings(name="second")).model == "second"


def test_over_a_socket_no_certificates_are_read(monkeypatch):
    monkeypatch.setattr(ssl, "create_default_context", None)
    assert transport(endpoint_at("unix:/nowhere", "tiny")) is not None
