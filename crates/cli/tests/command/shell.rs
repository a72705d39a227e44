//! The shell: driven through a pseudo-terminal, and fed from a pipe.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::run::{command, failed, machine, ok};
use crate::writing::{fed, said, sound, untouched};

/// A time in which the shell answers on any machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A shell on a new terminal.
pub(crate) struct Terminal {
    screen: File,
    shell: Child,
    /// The text that was shown since the last look.
    shown: String,
}

impl Terminal {
    /// Starts a shell of extern4 in `dir`, and waits for its prompt.
    fn start(dir: &Path, args: &[&str]) -> Self {
        let mut command = command();
        command
            .current_dir(dir)
            .arg("shell")
            .args(args)
            .env("XDG_STATE_HOME", dir.join("state"));
        let mut terminal = Self::with(command);
        terminal.wait_for("extern4:/");
        terminal
    }

    /// Starts a shell.
    pub(crate) fn with(mut command: Command) -> Self {
        let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&screen)
            .and_then(|()| unlockpt(&screen))
            .expect("it is this test's");
        let name = ptsname(&screen, Vec::new()).expect("its name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let side = File::from(open(&*name, flags, Mode::empty()).expect("its other side"));
        let end = || Stdio::from(side.try_clone().expect("a descriptor"));
        command
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .env("TERM", "xterm");
        let shell = command.spawn().expect("the shell starts");
        Self {
            screen: screen.into(),
            shell,
            shown: String::new(),
        }
    }

    /// Waits until the text is shown; returns everything that was shown up to it.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let start = Instant::now();
        loop {
            if let Some(at) = self.shown.find(text) {
                let rest = self.shown.split_off(at + text.len());
                return std::mem::replace(&mut self.shown, rest);
            }
            assert!(
                start.elapsed() < TIMEOUT,
                "{text:?} is not shown: {:?}",
                self.shown
            );
            let mut fds = [PollFd::new(&self.screen, PollFlags::IN)];
            let wait = Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            };
            if poll(&mut fds, Some(&wait)).expect("poll") == 0 {
                continue;
            }
            let mut bytes = [0; 4096];
            // An error says that the shell has closed its side.
            match self.screen.read(&mut bytes) {
                Ok(len) if len > 0 => self.shown.push_str(&String::from_utf8_lossy(&bytes[..len])),
                _ => panic!(
                    "{text:?} is not shown, and the shell has ended: {:?}",
                    self.shown
                ),
            }
        }
    }

    pub(crate) fn send(&mut self, keys: &str) {
        self.screen
            .write_all(keys.as_bytes())
            .expect("the keys are sent");
    }

    /// Types a line, and returns what is shown up to the next prompt.
    #[track_caller]
    fn run(&mut self, line: &str) -> String {
        self.send(&format!("{line}\r"));
        // The line is shown once more as it is typed.
        self.wait_for("\r\n");
        self.wait_for("extern4:/")
    }

    pub(crate) fn end(mut self) -> ExitStatus {
        self.send("exit\r");
        self.shell.wait().expect("it ends")
    }
}

#[test]
fn a_shell_looks_and_changes() {
    let image = machine();
    let mut shell = Terminal::start(image.scratch(), &["disk.img"]);
    shell.run("cd etc");
    assert!(shell.run("pwd; cat hostname").contains("/etc\r\ntiny\r\n"));
    let listed = shell.run("ls");
    assert!(
        listed.contains("hostname") && listed.contains("passwd"),
        "{listed}"
    );
    assert!(shell.run("ls host*").contains("/etc/hostname\r\n"));
    assert!(
        shell
            .run("ls 'host*'")
            .contains("'disk.img:/etc/host*': No such file or directory")
    );
    assert!(
        shell
            .run("cat gone")
            .contains("'disk.img:/etc/gone': No such file or directory")
    );
    assert!(
        shell
            .run("nonsense")
            .contains("unrecognized subcommand 'nonsense'")
    );
    assert!(shell.run("cd gone").contains("No such file or directory"));
    assert!(
        shell.run("pwd").contains("/etc\r\n"),
        "a directory that is not there is not entered"
    );
    assert!(shell.run("!echo of the host").contains("of the host\r\n"));
    assert!(shell.run("stat <2>").contains("Inode:"));
    assert!(shell.run("logdump").contains("logdump: no command"));
    assert!(shell.run("help").contains("Words of debugfs"));
    shell.run("mkdir new");
    shell.run("cp hostname host:copy");
    assert!(
        shell.end().success(),
        "failures of commands are not those of the shell"
    );
    assert!(said(&image, &["ls", "disk.img:/etc"]).contains("new\n"));
    assert_eq!(
        std::fs::read_to_string(image.scratch().join("copy")).expect("a copy"),
        "tiny\n"
    );
    sound(&image);
}

#[test]
fn a_shell_completes_and_remembers() {
    let image = machine();
    let mut shell = Terminal::start(image.scratch(), &["disk.img:/home"]);
    // Tab completes the command, the directory, and the name in it.
    shell.send("getfac\t");
    shell.wait_for("getfacl ");
    shell.send("an\tno\t");
    shell.wait_for("notes.txt");
    shell.send("\r");
    shell.wait_for("# owner: ann");
    shell.wait_for("extern4:/");
    shell.run("pwd");
    assert!(shell.end().success());
    // The next shell knows the lines: up, up, up reaches the one before exit and pwd.
    let history =
        std::fs::read_to_string(image.scratch().join("state/extern4/history")).expect("a history");
    assert!(history.contains("getfacl ann/notes.txt"), "{history}");
    let mut shell = Terminal::start(image.scratch(), &["disk.img:/home"]);
    shell.send("\x1b[A\x1b[A\x1b[A\r");
    shell.wait_for("# owner: ann");
    assert!(shell.end().success());
    sound(&image);
}

#[test]
fn a_shell_holds_transactions_back() {
    let image = machine();
    let mut shell = Terminal::start(image.scratch(), &["disk.img"]);
    shell.run("begin");
    shell.wait_for("* ");
    shell.run("mkdir /a; cd /a");
    shell.run("mkdir b");
    shell.run("commit");
    assert!(shell.run("find /a").contains("/a/b\r\n"));
    shell.run("begin");
    shell.run("rm -r /a");
    assert!(
        shell
            .run("mkdir /x/y; commit")
            .contains("nothing between begin and commit was done")
    );
    assert!(shell.run("find /a").contains("/a/b\r\n"));
    shell.run("begin; rm -r /a");
    // Ctrl-C.
    shell.send("\x03");
    shell.wait_for("the transaction was aborted");
    shell.wait_for("extern4:/");
    assert!(shell.run("find /a").contains("/a/b\r\n"));
    assert!(shell.end().success());
    sound(&image);
}

#[test]
fn a_shell_takes_a_pipe() {
    let image = machine();
    let script = "cat etc/hostname\nbegin; mkdir '/of \ntwo lines'\n commit\nls \\\n /home\ncat gone\nmkdir /after\nexit\nmkdir /late\n";
    let output = fed(&image, &["shell", "disk.img"], script.as_bytes());
    let errors = failed(&output, 1);
    assert_eq!(
        errors,
        "extern4: shell: standard input:7: 'disk.img:/gone': No such file or directory\n"
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "tiny\nann\n");
    let listed = said(&image, &["find", "disk.img", "-maxdepth", "1"]);
    assert!(
        listed.contains("two lines") && listed.contains("/after") && !listed.contains("late"),
        "{listed}"
    );
    sound(&image);
}

#[test]
fn a_shell_that_only_reads_does_not_write() {
    let image = machine();
    untouched(&image, || {
        ok(fed(
            &image,
            &["shell", "disk.img"],
            b"cd etc\nls -l\ncat hostname\n",
        ))
    });
    let errors = untouched(&image, || {
        failed(&fed(&image, &["shell", "-r", "disk.img"], b"mkdir /a\n"), 1)
    });
    assert!(errors.contains("Read-only file system"), "{errors}");
    untouched(&image, || {
        failed(&fed(&image, &["shell", "disk.img:/gone"], b"mkdir /a\n"), 1);
        let errors = failed(
            &fed(&image, &["shell", "disk.img"], b"begin\nmkdir /a\n"),
            1,
        );
        assert!(
            errors.contains("nothing between begin and the end was done"),
            "{errors}"
        );
    });
}

#[test]
fn a_shell_goes_to_directories_of_the_host_and_back() {
    let image = machine();
    std::fs::create_dir(image.scratch().join("d")).expect("a directory");
    std::fs::write(image.scratch().join("d/f"), "hello\n").expect("a file");
    let lines = "ls -d /etc\nlcd d\ncp host:f /f\ncat /f\ncat /gone\ncp host:../disk.img /copy\n\
                 begin\nmkdir /a\nmkdir /gone/b\ncommit\nmkdir /b\ncd /home/ann\ncd\ncd -\npwd\ncd -\n";
    let output = fed(&image, &["shell", "disk.img"], lines.as_bytes());
    let errors = failed(&output, 1);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "/etc\nhello\n/home/ann\n/home/ann\n/\n"
    );
    for says in [
        "5: 'disk.img:/gone': No such file",
        "6: '../disk.img': the image is not copied into itself",
        "9: 'disk.img': nothing between begin and commit was done",
    ] {
        assert!(errors.contains(says), "{says}: {errors}");
    }
    assert_eq!(
        said(&image, &["ls", "-d", "disk.img:/b", "disk.img:/f"]),
        "/b\n/f\n"
    );
    let errors = failed(&fed(&image, &["shell", "disk.img"], b"cd -\n"), 1);
    assert!(
        errors.contains("there is no directory to go back to"),
        "{errors}"
    );
    sound(&image);
}

#[test]
fn a_shell_takes_commands_from_its_command_line() {
    let image = machine();
    let run =
        |commands: &str| crate::run::extern4(&image, ["shell", "-c", commands, "disk.img:/etc"]);
    assert_eq!(ok(run("cat hostname; mkdir new\npwd")), b"tiny\n/etc\n");
    let output = run("cat gone\nls -d new > /list");
    assert_eq!(
        failed(&output, 1),
        "extern4: shell: -c:1: 'disk.img:/etc/gone': No such file or directory\n"
    );
    assert_eq!(said(&image, &["cat", "disk.img:/list"]), "/etc/new\n");
    assert!(failed(&run("ls 'x"), 2).contains("-c:1: a quote is not closed"));
    failed(&run("begin; mkdir /a"), 1);
    sound(&image);
}

#[test]
fn a_shell_explains_each_command() {
    let image = machine();
    let run = |line: &str| crate::run::extern4(&image, ["shell", "-c", line, "disk.img"]);
    for (line, says) in [
        ("help cd", "Usage: cd [DIRECTORY]"),
        ("help q", "Usage: exit"),
        ("? ls", "Usage: ls"),
        ("help ncheck", "Usage: ncheck INODE..."),
        ("help", "| COMMAND"),
        ("help | tail -n 1", "Words of debugfs"),
    ] {
        let text = String::from_utf8(ok(run(line))).expect("text");
        assert!(text.contains(says), "{line}: {text}");
    }
    assert!(failed(&run("help clri"), 2).contains("whole operations"));
    assert_eq!(ok(run("history")), b"");
}

#[test]
fn a_shell_redirects_and_shows_its_history() {
    let image = machine();
    let mut shell = Terminal::start(image.scratch(), &["disk.img"]);
    shell.send("cat etc/host\t> hos\t");
    shell.wait_for("host:");
    shell.send("out\r");
    shell.wait_for("extern4:/");
    // After a '|', the shell completes names of files on the host.
    std::fs::write(image.scratch().join("own list"), "").expect("a file");
    shell.send("ls etc | grep hostn >> own\t");
    shell.wait_for("own\\ list");
    shell.send("\r");
    shell.wait_for("extern4:/");
    let shown = shell.run("history");
    assert!(
        shown.contains("    1  cat etc/hostname > host:out\r\n"),
        "{shown}"
    );
    assert!(shown.contains("    3  history\r\n"), "{shown}");
    assert!(
        shell
            .run("cat etc/hostname | tr a-z A-Z")
            .contains("TINY\r\n")
    );
    assert!(shell.run("ls && ls").contains("'&&' has no meaning here"));
    assert!(shell.end().success());
    assert_eq!(
        std::fs::read_to_string(image.scratch().join("out")).expect("a file"),
        "tiny\n"
    );
    sound(&image);
}

/// SIGTERM ends the shell at its prompt, and the terminal is as it was.
#[test]
fn a_signal_ends_the_prompt() {
    use rustix::process::{Pid, Signal, kill_process};
    use rustix::termios::{LocalModes, tcgetattr};

    let image = machine();
    let mut shell = Terminal::start(image.scratch(), &["disk.img"]);
    shell.run("mkdir /new");
    shell.send("mkdir /half");
    shell.wait_for("mkdir /half");
    let pid = Pid::from_child(&shell.shell);
    let modes = |shell: &Terminal| tcgetattr(&shell.screen).expect("the terminal").local_modes;
    let raw = modes(&shell);
    // Ctrl-C is a key at the prompt. The signal from elsewhere ends nothing.
    kill_process(pid, Signal::INT).expect("a signal");
    shell.send("\x15pwd\r");
    shell.wait_for("extern4:/");
    shell.send("mkdir /half");
    shell.wait_for("mkdir /half");
    kill_process(pid, Signal::TERM).expect("a signal");
    shell.wait_for("interrupted: the shell has ended");
    assert_eq!(shell.shell.wait().expect("it ends").code(), Some(143));
    let now = modes(&shell);
    assert!(now.contains(LocalModes::ICANON | LocalModes::ECHO) && raw != now);
    let listed = said(&image, &["ls", "disk.img"]);
    assert!(
        listed.contains("new\n") && !listed.contains("half"),
        "{listed}"
    );
    let history =
        std::fs::read_to_string(image.scratch().join("state/extern4/history")).expect("a history");
    assert!(history.contains("mkdir /new"), "{history}");
    sound(&image);
}
