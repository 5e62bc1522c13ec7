//! Programs in WebAssembly text.

/// A preview 1 module with a memory of one page, `$read(buffer, length)` and `$write(file, buffer, length)`, and this code.
pub(crate) fn module(code: &str) -> String {
    format!(
        r#"(module
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 1024) "hello\n")
  (func $read (param $buffer i32) (param $length i32) (result i32)
    (i32.store (i32.const 0) (local.get $buffer))
    (i32.store (i32.const 4) (local.get $length))
    (if (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)) (then unreachable))
    (i32.load (i32.const 8)))
  (func $write (param $file i32) (param $buffer i32) (param $length i32)
    (loop $more
      (i32.store (i32.const 0) (local.get $buffer))
      (i32.store (i32.const 4) (local.get $length))
      (if (call $fd_write (local.get $file) (i32.const 0) (i32.const 1) (i32.const 8)) (then unreachable))
      (local.set $buffer (i32.add (local.get $buffer) (i32.load (i32.const 8))))
      (local.set $length (i32.sub (local.get $length) (i32.load (i32.const 8))))
      (br_if $more (local.get $length))))
  {code})"#
    )
}

/// Copies standard input to standard output.
pub(crate) fn cat() -> String {
    module(
        r#"(func (export "_start") (local $n i32)
    (loop $more
      (local.set $n (call $read (i32.const 4096) (i32.const 16384)))
      (if (local.get $n) (then
        (call $write (i32.const 1) (i32.const 4096) (local.get $n))
        (br $more)))))"#,
    )
}

/// Writes `hello`.
pub(crate) fn hello() -> String {
    module(r#"(func (export "_start") (call $write (i32.const 1) (i32.const 1024) (i32.const 6)))"#)
}

/// Complains on standard error and exits with this code.
pub(crate) fn exits(code: i32) -> String {
    module(&format!(
        r#"(func (export "_start")
    (call $write (i32.const 1) (i32.const 1024) (i32.const 6))
    (call $write (i32.const 2) (i32.const 1024) (i32.const 5))
    (call $exit (i32.const {code})))"#
    ))
}

/// Never ends.
pub(crate) fn spins() -> String {
    module(r#"(func (export "_start") (loop $for_ever (br $for_ever)))"#)
}

/// A preview 2 command whose `run` has this code. Its result is 0 for success and 1 for an error.
pub(crate) fn component(code: &str) -> String {
    format!(
        r#"(component
  (core module $program (func (export "run") (result i32) {code}))
  (core instance $instance (instantiate $program))
  (func $run (result (result)) (canon lift (core func $instance "run")))
  (instance $exported (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $exported)))"#
    )
}

/// A preview 2 command that writes `hello` to standard output.
pub(crate) fn component_hello() -> String {
    r#"(component
  (import "wasi:io/error@0.2.0" (instance $errors (export "error" (type (sub resource)))))
  (alias export $errors "error" (type $error))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (export "output-stream" (type $stream (sub resource)))
    (alias outer 1 $error (type $error-outer))
    (export "error" (type $error-here (eq $error-outer)))
    (type $stream-error-type (variant (case "last-operation-failed" (own $error-here)) (case "closed")))
    (export "stream-error" (type $stream-error (eq $stream-error-type)))
    (export "[method]output-stream.blocking-write-and-flush"
      (func (param "self" (borrow $stream)) (param "contents" (list u8)) (result (result (error $stream-error)))))))
  (alias export $streams "output-stream" (type $output-stream))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (alias outer 1 $output-stream (type $outer))
    (export "output-stream" (type $stream (eq $outer)))
    (export "get-stdout" (func (result (own $stream))))))
  (core module $libc
    (memory (export "memory") 1)
    (data (i32.const 1024) "hello\n"))
  (core instance $memory (instantiate $libc))
  (core func $get (canon lower (func $stdout "get-stdout")))
  (core func $write (canon lower (func $streams "[method]output-stream.blocking-write-and-flush")
    (memory (core memory $memory "memory"))))
  (core module $program
    (import "host" "get" (func $get (result i32)))
    (import "host" "write" (func $write (param i32 i32 i32 i32)))
    (func (export "run") (result i32)
      (call $write (call $get) (i32.const 1024) (i32.const 6) (i32.const 16))
      (i32.const 0)))
  (core instance $instance (instantiate $program
    (with "host" (instance (export "get" (func $get)) (export "write" (func $write))))))
  (func $run (result (result)) (canon lift (core func $instance "run")))
  (instance $exported (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $exported)))"#
        .to_owned()
}
