//! Finds the reason why requests cannot come through rings, for a user that asks for them.
//!
//! `transport` calls it where the user has asked for rings and there are none. It reads the
//! settings of the system and changes nothing. If none explains the failure, the message is that of
//! the system call.

use std::fs::read_to_string;
use std::io;

use rustix::io::Errno as OsErrno;

/// The switch of FUSE over `io_uring`, which kernels before 6.14 do not have.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The system's settings of `io_uring`.
struct System {
    /// `kernel.io_uring_disabled`, if there is such a setting.
    disabled: Option<String>,
    /// A filter of system calls is in force for this process.
    is_filtered: bool,
    /// The switch of FUSE.
    switch: Option<String>,
}

/// Returns why there are no rings: creating them failed with `error`, or the kernel offered none.
pub(super) fn explain(error: Option<&io::Error>) -> io::Error {
    let read = |path: &str| read_to_string(path).ok().map(|text| text.trim().to_owned());
    let filter = read("/proc/self/status").and_then(|status| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("Seccomp:"))?;
        Some(line.trim() != "0")
    });
    let system = System {
        disabled: read("/proc/sys/kernel/io_uring_disabled"),
        is_filtered: filter.unwrap_or(false),
        switch: read(SWITCH),
    };
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!("no requests through io_uring: {}", why(error, &system)),
    )
}

fn why(error: Option<&io::Error>, system: &System) -> String {
    let Some(error) = error else {
        return match system.switch.as_deref() {
            Some("N") => format!("the kernel's FUSE has it switched off, by {SWITCH}"),
            Some(_) => "the kernel's FUSE does not offer it to this mount".to_owned(),
            None => "the kernel is too old, for its FUSE has that since Linux 6.14".to_owned(),
        };
    };
    let is = |errno: OsErrno| error.raw_os_error() == Some(errno.raw_os_error());
    match system.disabled.as_deref() {
        Some("2") if is(OsErrno::PERM) => {
            return "the sysctl kernel.io_uring_disabled is 2".to_owned();
        }
        Some("1") if is(OsErrno::PERM) => {
            return "the sysctl kernel.io_uring_disabled is 1, which leaves it to the group kernel.io_uring_group"
                .to_owned();
        }
        _ => {}
    }
    let refused = is(OsErrno::PERM) || is(OsErrno::ACCESS) || is(OsErrno::NOSYS);
    if refused && system.is_filtered {
        return format!("a seccomp filter, as containers have, refuses io_uring_setup(2): {error}");
    }
    if is(OsErrno::NOSYS) {
        return "the kernel has no io_uring".to_owned();
    }
    if is(OsErrno::NOMEM) {
        return format!("the memory for it is limited, as by RLIMIT_MEMLOCK: {error}");
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::{System, why};
    use rustix::io::Errno;
    use std::io;

    #[test]
    fn the_obstacle_to_rings_is_named() {
        let check = |error: Option<Errno>,
                     disabled: &str,
                     is_filtered,
                     switch: Option<&str>,
                     named: &str| {
            let error = error.map(io::Error::from);
            let disabled = Some(disabled.to_owned());
            let switch = switch.map(str::to_owned);
            let why = why(
                error.as_ref(),
                &System {
                    disabled,
                    is_filtered,
                    switch,
                },
            );
            assert!(why.contains(named), "{why}");
        };
        check(None, "0", false, Some("N"), "enable_uring");
        check(None, "0", false, None, "too old");
        check(None, "0", false, Some("Y"), "does not offer it");
        check(
            Some(Errno::PERM),
            "2",
            false,
            Some("Y"),
            "io_uring_disabled is 2",
        );
        check(
            Some(Errno::PERM),
            "1",
            false,
            Some("Y"),
            "kernel.io_uring_group",
        );
        check(Some(Errno::PERM), "0", true, Some("Y"), "seccomp");
        check(Some(Errno::NOSYS), "0", true, Some("Y"), "seccomp");
        check(
            Some(Errno::NOSYS),
            "0",
            false,
            Some("Y"),
            "the kernel has no io_uring",
        );
        check(Some(Errno::NOMEM), "0", false, Some("Y"), "RLIMIT_MEMLOCK");
        check(
            Some(Errno::MFILE),
            "0",
            false,
            Some("Y"),
            "Too many open files",
        );
    }
}
