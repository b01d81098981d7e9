-- Neovim 0.7 to 0.10: put this into your init.lua.
vim.filetype.add({ extension = { cu = "cuda", cuh = "cuda" } })
local kernel_lsp
vim.api.nvim_create_autocmd("FileType", { pattern = { "cuda", "python" }, callback = function(event)
  if vim.api.nvim_buf_get_name(event.buf) == "" then return end
  kernel_lsp = kernel_lsp or vim.lsp.start_client({
    name = "kernel-lsp",
    cmd = { "kernel-lsp", "serve" },
    root_dir = vim.fn.getcwd(),
    on_exit = function() kernel_lsp = nil end,
    on_attach = function(_, buffer)
      vim.keymap.set("n", "gra", vim.lsp.buf.code_action, { buffer = buffer })
      vim.keymap.set("n", "grl", vim.lsp.codelens.run, { buffer = buffer })
      vim.keymap.set("n", "K", vim.lsp.buf.hover, { buffer = buffer })
    end,
  })
  vim.lsp.buf_attach_client(event.buf, kernel_lsp)
end })
vim.api.nvim_create_user_command("KernelStop", function()
  vim.lsp.buf.execute_command({ command = "kernel-lsp.cancel", arguments = {} })
end, { desc = "End what kernel-lsp is working on" })
