"""JUnit's XML, which nearly every CI system shows as tests: a suite for each file, a case for each finding."""

from xml.etree import ElementTree

from kernel_lsp.check import FileReport
from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.report.formats.results import CheckResults
from kernel_lsp.rules.catalog import RULES


def junit(results: CheckResults) -> str:
    """Return JUnit XML: findings that fail the check are failures, other findings are cases that pass and say so."""
    suites = ElementTree.Element("testsuites", name="kernel-lsp check")
    for report in results.reports:
        _add_suite(suites, report, results)
    for count in ("tests", "failures"):
        suites.set(count, str(sum(int(suite.get(count, "0")) for suite in suites)))
    suites.set("time", f"{sum(report.seconds for report in results.reports):.3f}")
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _add_suite(suites: ElementTree.Element, report: FileReport, results: CheckResults) -> None:
    name = results.name(report.path)
    found = [one for one in report.diagnostics if one.severity is not Severity.NOTE]
    failing = [one for one in found if results.strict or one.severity is Severity.ERROR]
    suite = ElementTree.SubElement(suites, "testsuite", name=name, time=f"{report.seconds:.3f}")
    suite.set("tests", str(max(len(found), 1)))
    suite.set("failures", str(len(failing)))
    if not found:
        ElementTree.SubElement(suite, "testcase", classname=name, name="check", time=f"{report.seconds:.3f}")
    for one in found:
        rule = f"{one.code} {RULES[one.code].name}" if one.code in RULES else "check"
        case = ElementTree.SubElement(suite, "testcase", classname=name, name=f"{rule} at line {one.line}", time="0")
        case.set("file", results.name(one.path))
        case.set("line", str(one.line))
        if one in failing:
            failure = ElementTree.SubElement(case, "failure", message=_clean(one.message), type=one.code or "")
            failure.text = f"{results.name(one.path)}:{one.line}: {_clean(one.message)}"
        else:
            ElementTree.SubElement(case, "system-out").text = _said(one)


def _said(found: Diagnostic) -> str:
    return f"{found.severity}: {_clean(found.message)}"


def _clean(text: str) -> str:
    """Without the characters that XML cannot hold."""
    return "".join(character for character in text if character in "\t\n" or character >= " ")
