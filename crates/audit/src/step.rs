//! Counts the locked instructions that the CPU executes, by stepping through the code one
//! instruction at a time.
//!
//! With the trap flag set, the CPU raises a debug exception after each instruction, and the kernel
//! delivers it as SIGTRAP. The handler looks at the instruction that comes next. Nothing is left
//! out, be it in this workspace, in the standard library or in the C library. A system call is one
//! instruction.
//!
//! Tests and the lab call it for x86-64 on Linux; elsewhere there is no count. It is slow, and the
//! handler of SIGTRAP is the process's own meanwhile.

#![allow(unsafe_code)]

/// Runs `act`, and returns its result and the number of locked instructions that it executed on
/// this thread. These are instructions with the prefix, and exchanges with memory, which need none.
/// Returns `None`, without running `act`, on systems where this cannot step.
pub fn locked_instructions<R>(act: impl FnOnce() -> R) -> Option<(R, u64)> {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    return Some(x86::count(act));
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
    {
        let _ = act;
        None
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod x86 {
    use std::arch::asm;
    use std::cell::Cell;
    use std::ptr;
    use std::sync::Once;

    thread_local! {
        // A constant initial value without a destructor, so that the signal handler may use it.
        static LOCKED: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn count<R>(act: impl FnOnce() -> R) -> (R, u64) {
        /// Ends the stepping, also if `act` panics.
        struct Stepping;
        impl Drop for Stepping {
            fn drop(&mut self) {
                // SAFETY: clears the trap flag and changes no other; the stack is as before.
                unsafe {
                    asm!("pushfq", "and qword ptr [rsp], {trap}", "popfq", trap = const !0x100_i32)
                };
            }
        }
        install();
        LOCKED.set(0);
        let stepping = Stepping;
        // SAFETY: sets the trap flag and changes no other; the handler of the signal that follows
        // is installed.
        unsafe { asm!("pushfq", "or qword ptr [rsp], {trap}", "popfq", trap = const 0x100_i32) };
        let result = act();
        drop(stepping);
        (result, LOCKED.get())
    }

    fn install() {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            // SAFETY: all zeroes is a valid `sigaction`.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = step as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            // SAFETY: `action` is complete, and `step` does only what a handler may.
            let failed = unsafe { libc::sigaction(libc::SIGTRAP, &action, ptr::null_mut()) };
            assert_eq!(failed, 0, "SIGTRAP cannot be handled");
        });
    }

    /// The handler. The kernel has cleared the trap flag for it, and sets it again when it returns.
    extern "C" fn step(
        _signal: libc::c_int,
        _info: *mut libc::siginfo_t,
        context: *mut libc::c_void,
    ) {
        // SAFETY: the kernel gives a handler with `SA_SIGINFO` the context of the thread.
        let context = unsafe { &*context.cast::<libc::ucontext_t>() };
        let next = context.uc_mcontext.gregs[libc::REG_RIP as usize] as *const u8;
        // SAFETY: the thread is about to execute what stands there.
        if unsafe { is_locked(next) } {
            LOCKED.set(LOCKED.get() + 1);
        }
    }

    /// # Safety
    /// There is an instruction at `at`.
    unsafe fn is_locked(mut at: *const u8) -> bool {
        const LOCK: u8 = 0xF0;
        const EXCHANGES: [u8; 2] = [0x86, 0x87];
        loop {
            // SAFETY: so far there were prefixes only, so the instruction goes on.
            match unsafe { at.read() } {
                LOCK => return true,
                // Other prefixes: operand and address size, repetition, segments, and the widening
                // of registers.
                0x66
                | 0x67
                | 0xF2
                | 0xF3
                | 0x26
                | 0x2E
                | 0x36
                | 0x3E
                | 0x64
                | 0x65
                | 0x40..=0x4F => {}
                // SAFETY: an exchange has a second byte, whose highest two bits are set if it is
                // between registers.
                opcode => return EXCHANGES.contains(&opcode) && unsafe { at.add(1).read() } < 0xC0,
            }
            // SAFETY: as above.
            at = unsafe { at.add(1) };
        }
    }
}
