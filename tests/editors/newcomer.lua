-- A newcomer's first minutes in Neovim 0.11 with the set-up that the README gives: only keys that it names are used, and
-- the list of a choice is answered by its number. What was seen goes to $RESULT.
local out = io.open(os.getenv("RESULT"), "w")
local function say(...)
  out:write(table.concat(vim.tbl_map(tostring, { ... }), " ") .. "\n")
  out:flush()
end
local function wait(what, ready)
  assert(vim.wait(90000, ready, 20), "waited in vain for " .. what)
end
local function text() return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), "\n") end
local function lens()
  local found = {}
  for _, one in ipairs(vim.lsp.codelens.get(0)) do
    if one.command then table.insert(found, one.command.title) end
  end
  return table.concat(found, " | ")
end
local keys, choices = 0, 0
local function press(which)
  keys = keys + 1
  vim.api.nvim_feedkeys(vim.api.nvim_replace_termcodes(which, true, true, true), "mx", false)
end
local wanted
vim.ui.select = function(items, options, choose)
  for number, item in ipairs(items) do
    local shown = options.format_item and options.format_item(item) or tostring(item)
    if wanted and shown:find(wanted, 1, true) then
      choices = choices + 1
      return choose(item, number)
    end
  end
  choose(nil)
end
local function at(line)
  vim.api.nvim_win_set_cursor(0, { vim.fn.search(line, "cw"), 4 })
end
local function pick(key, title, ready)
  wanted = title
  local pressed = 0
  wait(title, function()
    pressed = pressed + 1
    if pressed % 100 == 1 then -- fixes are checked themselves before they are offered
      press(key)
      if pressed > 1 then keys = keys - 1 end
    end
    return ready()
  end)
  say("picked", title)
end

local ok, err = pcall(function()
  vim.cmd("filetype on")
  dofile(os.getenv("SETUP"))
  vim.cmd("edit scale_bias.cu")
  at("__global__")
  wait("a lens", function() return lens():find("Not trusted") ~= nil end)
  say("lens", lens())
  pick("gra", "Trust", function() return lens():find("Draft a workload") ~= nil end)
  wait("facts", function() return lens():find("occupancy") ~= nil end)
  say("lens", lens())

  pick("grl", "Draft a workload", function() return text():find("def reference", 1, true) ~= nil end)
  assert(text():find("return x * scale + bias", 1, true), "the draft has no formula")
  vim.api.nvim_win_set_cursor(0, { 1, 0 })
  pick("gra", "Use this workload", function() return not text():find("kernel-lsp: draft", 1, true) end)

  press("<C-o>")
  assert(vim.api.nvim_buf_get_name(0):find("scale_bias.cu", 1, true), "one does not come back to the kernel")
  wait("a finding", function() return #vim.diagnostic.get(0, { severity = vim.diagnostic.severity.ERROR }) > 0 end)
  local finding = vim.diagnostic.get(0, { severity = vim.diagnostic.severity.ERROR })[1]
  say("finding", finding.lnum + 1, finding.message)
  vim.api.nvim_win_set_cursor(0, { finding.lnum + 1, 4 })
  pick("gra", "(checked)", function() return text():find("if (i < rows * cols)", 1, true) ~= nil end)

  vim.cmd("doautocmd TextChanged") -- as Neovim does when it waits for a key, which it never does here
  at("__global__")
  wait("the check of the mended text", function() return lens():find("checks passed") ~= nil end)
  wait("facts", function() return lens():find("occupancy") ~= nil end)
  say("lens", lens())
  pick("grl", "occupancy", function() return text():find("ISETP", 1, true) ~= nil end)
  say("listing", vim.api.nvim_buf_get_name(0):match("[^/]*$"))
  say("keys", keys, "choices", choices)
  say("PASS")
end)
if not ok then say("FAIL", err, "|", lens(), "|", vim.api.nvim_buf_get_name(0)) end
out:close()
vim.cmd("qa!")
