;; Looks for what another call of it has left, and leaves all it can: in memory, in a global, in a table, in how large
;; memory and table are. `run` does one after the other; `handle` the other way around, and so must find it. What it
;; leaves is the letter Z over and over, which scripts can leave too. A `run` that is given more than `{}` only leaves it,
;; and then goes on until it is ended.
(global $kept (mut i64) (i64.const 0))
(table $table 10 100 funcref)
(elem declare func $found)
(func $found (result i32)
    (local $at i32)
    (if (i64.ne (global.get $kept) (i64.const 0)) (then (return (i32.const 1))))
    (if (i32.eqz (ref.is_null (table.get $table (i32.const 5)))) (then (return (i32.const 1))))
    (if (i32.ne (table.size $table) (i32.const 10)) (then (return (i32.const 1))))
    (if (i32.ne (memory.size) (i32.const 2)) (then (return (i32.const 1))))
    ;; As far as the interpreter's memory goes with what a script has in it; one in eight, as nobody leaves only eight bytes.
    (drop (memory.grow (i32.const 190)))
    (local.set $at (i32.const 65536))
    (loop $more
        (if (i64.eq (i64.load (local.get $at)) (i64.const 0x5a5a5a5a5a5a5a5a)) (then (return (i32.const 1))))
        (local.set $at (i32.add (local.get $at) (i32.const 64)))
        (br_if $more (i32.lt_u (local.get $at) (i32.const 12582912))))
    (i32.const 0))
(func $leave
    (local $at i32)
    (global.set $kept (i64.const 0x5a5a5a5a5a5a5a5a))
    (table.set $table (i32.const 5) (ref.func $found))
    (drop (table.grow $table (ref.func $found) (i32.const 20)))
    (drop (memory.grow (i32.const 10)))
    (local.set $at (i32.const 65536))
    (loop $more
        (i64.store (local.get $at) (i64.const 0x5a5a5a5a5a5a5a5a))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (br_if $more (i32.lt_u (local.get $at) (i32.const 786432)))))
(func (export "run") (param i32 i32) (result i32)
    (local $seen i32)
    (if (i32.ne (local.get 1) (i32.const 2)) (then (call $leave) (loop $ever (br $ever))))
    (local.set $seen (call $found))
    (call $leave)
    ;; "errors" where something was found, else "passed"
    (call $say (i32.sub (i32.const 2) (local.get $seen))))
(func (export "handle") (param i32 i32 i32 i32) (result i32)
    (call $leave)
    (call $say (i32.sub (i32.const 2) (call $found))))
