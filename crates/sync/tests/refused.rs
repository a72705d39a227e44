//! A seccomp filter refuses membarrier(2) after the process has begun to use it. It stays for the
//! rest of the process, which therefore runs this test alone.

#![cfg(all(target_os = "linux", not(any(miri, feature = "loom"))))]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use extern4_sync::membarrier::heavy_fence;
use extern4_sync::rcu::{Rcu, pin};

/// Makes the kernel return EPERM for membarrier(2) in this thread and in threads that it starts.
/// Fails with `InvalidInput` if the kernel, or what stands for it, has no filters.
fn refuse_membarrier() -> io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let mut filter = [
        // The number of the system call is the first field of `seccomp_data`.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            libc::SYS_membarrier as u32,
        ),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program outlives both calls, and they change no memory of this process.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    if refused {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Replaces a value, and waits until it is freed.
fn replace() {
    let value = Arc::new(());
    let cell = Rcu::new(Arc::clone(&value));
    cell.store(Arc::new(()));
    // Read sections of other threads may delay it for a moment.
    let freed = (0..1000).any(|_| {
        pin().flush();
        std::thread::sleep(Duration::from_millis(1));
        Arc::strong_count(&value) == 1
    });
    assert!(freed, "the value is never freed");
}

#[test]
fn the_barrier_falls_back_to_fences() {
    assert!(heavy_fence());
    replace();
    match refuse_membarrier() {
        // qemu-user, for one.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            eprintln!("skipped: no seccomp filters here");
            return;
        }
        refused => refused.expect("a filter"),
    }
    assert!(heavy_fence(), "heavy_fence falls back to a fence");
    replace();
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(replace))));
}
