-- Drives a headless Neovim, 0.7 or newer, through one session; what it saw goes to $RESULT, a line each.
local out = io.open(os.getenv("RESULT"), "w")
local function say(...)
  out:write(table.concat(vim.tbl_map(tostring, { ... }), " ") .. "\n")
  out:flush()
end
local function wait(what, ready, seconds)
  assert(vim.wait((seconds or 30) * 1000, ready, 20), "waited in vain for " .. what)
end
local function ask(method, params)
  local answers = vim.lsp.buf_request_sync(0, method, params, 20000)
  for _, answer in pairs(answers or {}) do
    if answer.err then return nil, answer.err.message end
    if answer.error then return nil, answer.error.message end
    return answer.result
  end
end
local function at(line)
  local place = { line = line, character = 5 }
  return { textDocument = vim.lsp.util.make_text_document_params(0), range = { start = place, ["end"] = place },
    context = { diagnostics = {} } }
end
local function actions() return ask("textDocument/codeAction", at(17)) or {} end
local function named(start)
  for _, action in ipairs(actions()) do
    if action.title:sub(1, #start) == start then return action end
  end
end
local function run(command)
  return ask("workspace/executeCommand", { command = command.command, arguments = command.arguments })
end
local function text() return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), "\n") end

local ok, err = pcall(function()
  local messages, progress = {}, {}
  vim.lsp.handlers["window/showMessage"] = function(_, result) table.insert(messages, result.message) end
  vim.lsp.handlers["window/showMessageRequest"] = function(_, result)
    table.insert(messages, result.message)
    return vim.NIL
  end
  local old = vim.lsp.handlers["$/progress"]
  vim.lsp.handlers["$/progress"] = function(e, result, ...)
    table.insert(progress, result.value)
    return old(e, result, ...)
  end
  vim.cmd("filetype on")
  dofile(os.getenv("SETUP"))
  local version = vim.version()
  say("nvim", version.major .. "." .. version.minor .. "." .. version.patch)

  vim.cmd("edit broken.cu")
  wait("diagnostics", function() return #vim.diagnostic.get(0) > 0 end, 60)
  say("diagnostic", vim.diagnostic.get(0)[1].lnum, vim.diagnostic.get(0)[1].message)

  vim.cmd("edit softmax.py")
  wait("code actions", function() return #actions() > 0 end, 60)
  for _, action in ipairs(actions()) do say("action", action.title) end
  if version.minor > 10 then
    wait("a lens with facts, though no key was pressed", function()
      for _, lens in ipairs(vim.lsp.codelens.get(0)) do
        if lens.command and lens.command.title:find(" regs") then return true end
      end
    end, 60)
    say("lens with facts")
  end

  run(named("Refine").command)
  wait("progress", function()
    return #progress > 0 and (progress[#progress].message or ""):find("correct") ~= nil
  end, 60)
  say("progress", progress[1].title, "|", progress[#progress].message)
  local stop = named("Stop refining")
  assert(run(stop.command) == true, "nothing was stopped")
  wait("the end of the progress", function() return progress[#progress].kind == "end" end, 10)
  say("stopped", progress[#progress].message)
  wait("the end of the job", function() return named("Refine") ~= nil end, 10)

  local before = text()
  vim.ui.select = function(items, _, choose)
    for number, item in ipairs(items) do
      local action = item.action or item[2]
      if action.title:find("^Apply") then return choose(item, number) end
    end
    error("no variant is offered")
  end
  vim.api.nvim_win_set_cursor(0, { 18, 5 })
  local apply = named("Apply")
  vim.lsp.buf.code_action()
  wait("the applied variant", function() return text() ~= before end, 20)
  say("applied", tostring(text() == (before:gsub("num_warps=4", "num_warps=2"))))
  vim.cmd("undo")
  assert(text() == before, "undo does not give the old text")

  vim.cmd([[%s/tl.exp(x/tl.exp2(x/]])
  local changed = text()
  local resolved, refused = ask("codeAction/resolve", apply)
  assert(resolved == nil, "a stale edit was resolved")
  say("refused", refused)
  assert(text() == changed, "a stale edit was applied")
  vim.cmd("silent write")
  say("PASS")
end)
if not ok then say("FAIL", err) end
out:close()
vim.cmd("qa!")
