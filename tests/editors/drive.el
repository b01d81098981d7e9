;;; -*- lexical-binding: t -*-
;; Drives Emacs in batch mode through one session with eglot; what it saw goes to $RESULT, a line each.
(require 'cl-lib)
(require 'eglot)

(defun say (&rest parts)
  (write-region (concat (mapconcat (lambda (part) (format "%s" part)) parts " ") "\n") nil (getenv "RESULT") t 'quiet))

(defun wait-for (what ready &optional seconds)
  (let ((deadline (+ (float-time) (or seconds 60))))
    (while (not (funcall ready))
      (when (> (float-time) deadline) (error "waited in vain for %s" what))
      (accept-process-output nil 0.05))))

(defvar found nil "Diagnostics, as the server published them.")
(defvar messages nil "What the server said.")
(cl-defmethod eglot-handle-notification :before
  (_server (_method (eql textDocument/publishDiagnostics)) &key diagnostics &allow-other-keys)
  (when (> (length diagnostics) 0) (push (aref diagnostics 0) found)))
(cl-defmethod eglot-handle-notification :before
  (_server (_method (eql window/showMessage)) &key message &allow-other-keys)
  (push message messages))
(cl-defmethod eglot-handle-request
  (_server (_method (eql window/showMessageRequest)) &key message &allow-other-keys)
  (push message messages)
  nil)

(defun begin () (apply #'eglot--connect (eglot--guess-contact)))
(defun send-changes () (eglot--signal-textDocument/didChange))
(defun actions () (eglot-code-actions (point) (point)))
(defun named (start)
  (cl-find-if (lambda (action) (string-prefix-p start (plist-get action :title))) (actions)))
(defun run (action)
  (let ((command (plist-get action :command)))
    (eglot-execute-command (eglot--current-server-or-lose) (intern (plist-get command :command))
                           (plist-get command :arguments))))
(defun under-way ()
  (plist-get (jsonrpc-request (eglot--current-server-or-lose) :kernelLsp/jobs nil) :jobs))

(condition-case problem
    (progn
      (setq eglot-sync-connect 30
            eglot-confirm-server-initiated-edits nil
            last-nonmenu-event t)
      (load (getenv "SETUP") nil t)
      (remove-hook 'cuda-mode-hook #'eglot-ensure) ; it waits for a command loop, which batch mode has not
      (add-to-list 'eglot-server-programs '(python-mode . ("kernel-lsp" "serve")))
      (say "emacs" emacs-version)

      (find-file "broken.cu")
      (say "mode" major-mode)
      (begin)
      (wait-for "diagnostics" (lambda () found))
      (say "diagnostic" (plist-get (plist-get (plist-get (car found) :range) :start) :line)
           (plist-get (car found) :message))

      (find-file "softmax.py")
      (goto-char (point-min))
      (forward-line 17)
      (begin)
      (wait-for "code actions" #'actions)
      (dolist (action (actions)) (say "action" (plist-get action :title)))

      (run (named "Refine"))
      (wait-for "progress" (lambda () (let ((stop (named "Stop refining")))
                                        (and stop (string-match-p "correct" (plist-get stop :title))))))
      (say "progress" (plist-get (named "Stop refining") :title))
      (run (named "Stop refining"))
      (wait-for "the end of the job" (lambda () (named "Refine")) 10)
      (say "stopped" (plist-get (aref (under-way) 0) :state))

      (let ((before (buffer-string)) (apply-it (named "Apply")))
        (cl-letf (((symbol-function 'completing-read)
                   (lambda (_ items &rest _) (caar (seq-filter (lambda (i) (string-prefix-p "Apply" (car i))) items)))))
          (eglot-code-actions (point) (point) nil t))
        (wait-for "the applied variant" (lambda () (not (equal before (buffer-string)))) 10)
        (say "applied" (equal (buffer-string) (replace-regexp-in-string "num_warps=4" "num_warps=2" before t t)))
        (send-changes)
        (erase-buffer)
        (insert (replace-regexp-in-string "tl.exp(x" "tl.exp2(x" before t t))
        (send-changes)
        (let ((changed (buffer-string)))
          (say "refused" (condition-case refusal (run apply-it) (error (error-message-string refusal))))
          (unless (equal changed (buffer-string)) (error "a stale edit was applied"))))
      (set-buffer-modified-p nil)
      (say "PASS"))
  (error (say "FAIL" (error-message-string problem) messages)))
(kill-emacs 0)
