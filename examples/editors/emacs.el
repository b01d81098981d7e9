;; Emacs 29 and newer, or Emacs 26 to 28 with the package eglot: put this into your init.el.
(require 'eglot)
(define-derived-mode cuda-mode c++-mode "CUDA")
(add-to-list 'auto-mode-alist '("\\.cuh?\\'" . cuda-mode))
(add-to-list 'eglot-server-programs '(cuda-mode . ("kernel-lsp" "serve")))
;; For Triton, in place of your usual Python server: (python-mode . ("kernel-lsp" "serve"))
(add-hook 'cuda-mode-hook #'eglot-ensure)

;; `M-x eglot-code-actions' offers what can be done at point; this ends what is being worked on.
(defun kernel-lsp-stop ()
  "End what kernel-lsp is working on."
  (interactive)
  (jsonrpc-async-request (eglot--current-server-or-lose) :workspace/executeCommand
                         '(:command "kernel-lsp.cancel" :arguments [])))
