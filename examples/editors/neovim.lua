-- Neovim 0.11 and newer: put this into your init.lua.
vim.filetype.add({ extension = { cu = "cuda", cuh = "cuda" } })
vim.lsp.config("kernel-lsp", {
  cmd = { "kernel-lsp", "serve" },
  filetypes = { "cuda", "python" },
  root_markers = { "pyproject.toml", ".git" },
  capabilities = vim.tbl_deep_extend("force", vim.lsp.protocol.make_client_capabilities(),
    { workspace = { codeLens = { refreshSupport = true } } }),
  handlers = {
    ["workspace/codeLens/refresh"] = function(_, _, context)
      local client = vim.lsp.get_client_by_id(context.client_id)
      for buffer in pairs(client and client.attached_buffers or {}) do
        vim.lsp.codelens.refresh({ bufnr = buffer })
      end
      return vim.NIL
    end,
  },
})
vim.lsp.enable("kernel-lsp")

-- `gra` offers what can be done at the cursor, such as to trust the file's folder, which comes first. `K` shows a kernel's
-- facts, and this runs what a lens above a kernel says.
vim.keymap.set("n", "grl", vim.lsp.codelens.run, { desc = "Run the code lens of this line" })
vim.api.nvim_create_autocmd({ "LspAttach", "InsertLeave", "TextChanged" }, { callback = function(event)
  vim.lsp.codelens.refresh({ bufnr = event.buf })
end })
-- How far a check or a search is: with `%{v:lua.vim.lsp.status()}` in your status line.
vim.api.nvim_create_autocmd("LspProgress", { command = "redrawstatus" })
vim.api.nvim_create_user_command("KernelStop", function()
  for _, client in ipairs(vim.lsp.get_clients({ name = "kernel-lsp" })) do
    client:request("workspace/executeCommand", { command = "kernel-lsp.cancel", arguments = {} })
  end
end, { desc = "End what kernel-lsp is working on" })
