-- Neovim 0.11 and newer: put this into your init.lua.
vim.filetype.add({ extension = { cu = "cuda", cuh = "cuda" } })
vim.lsp.config("kernel-lsp", {
  cmd = { "kernel-lsp", "serve" },
  filetypes = { "cuda", "python" },
  root_markers = { "pyproject.toml", ".git" },
})
vim.lsp.enable("kernel-lsp")

-- `gra` offers what can be done at the cursor, `K` shows a kernel's facts, and this runs what a lens above a kernel says.
vim.keymap.set("n", "grl", vim.lsp.codelens.run, { desc = "Run the code lens of this line" })
vim.api.nvim_create_autocmd({ "LspAttach", "InsertLeave" }, { callback = function(event)
  vim.lsp.codelens.refresh({ bufnr = event.buf })
end })
vim.api.nvim_create_user_command("KernelStop", function()
  for _, client in ipairs(vim.lsp.get_clients({ name = "kernel-lsp" })) do
    client:request("workspace/executeCommand", { command = "kernel-lsp.cancel", arguments = {} })
  end
end, { desc = "End what kernel-lsp is working on" })
