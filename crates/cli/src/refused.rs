//! Options of the namesakes that no volume can fulfil, with the reason.

/// The subcommands of an option, its name, and the reason for its refusal.
type Refusal = (&'static [&'static str], &'static str, &'static str);

const CONTEXT: &str = "a context is an attribute of the file: setfattr -n security.selinux sets it";
const ROOT: &str = "the root of a volume is never removed or renamed";

/// The options that are refused.
const REFUSED: &[Refusal] = &[
    (&["cp", "mv", "mkdir", "mknod", "mkfifo"], "-Z", CONTEXT),
    (&["cp", "mv", "mkdir", "mknod", "mkfifo"], "--context", CONTEXT),
    (&["rm"], "--no-preserve-root", ROOT),
    (&["ln"], "-d", "no volume has hard links to directories"),
    (&["ln"], "-F", "no volume has hard links to directories"),
    (&["ln"], "--directory", "no volume has hard links to directories"),
];

/// Returns an option that a subcommand refuses, and the reason. `option` may come with its value.
pub(crate) fn find(command: &str, option: &str) -> Option<(&'static str, &'static str)> {
    let option = option.split('=').next().unwrap_or(option);
    REFUSED
        .iter()
        .find(|(commands, name, _)| *name == option && commands.contains(&command))
        .map(|(_, name, reason)| (*name, *reason))
}
