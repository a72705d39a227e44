//! `extern4 completions`: writes the script with which a shell completes command lines.
//!
//! `args` calls [`run`], and `make release` keeps its output. Clap makes the part for subcommands
//! and options from the definition of the command line, so it always fits. For paths in volumes,
//! partitions and names the scripts of bash, zsh and fish ask `extern4 completions --candidates`.

mod candidates;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;

use clap_complete::Shell;

use crate::app::App;
use crate::output::{flush, out};

/// The end of clap's script for zsh, which runs its function or announces it.
const ZSH_END: &str = "if [ \"$funcstack[1]\" = \"_extern4\" ]; then\n";

/// The head of clap's function for zsh. Its name is that of the file, under which zsh calls the
/// function from the second time on: it goes to the function that asks for candidates.
const ZSH_HEAD: &str = "\n_extern4() {\n";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell to complete for
    shell: Shell,
    /// Print what the word of this index on a command line may become, as the script asks
    #[arg(long, value_name = "INDEX", hide = true, requires = "words")]
    candidates: Option<usize>,
    /// The words of the command line
    #[arg(last = true, hide = true, requires = "candidates")]
    words: Vec<OsString>,
}

pub(crate) fn run(args: &Args, _app: &mut App) -> io::Result<()> {
    let Some(index) = args.candidates else {
        return io::stdout().write_all(script(args.shell).as_bytes());
    };
    let mut out = out();
    for candidate in candidates::candidates(&args.words, index) {
        out.write_all(candidate.as_bytes())?;
        out.write_all(b"\n")?;
    }
    flush(&mut out)
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::args::command(), "extern4", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => script.push_str(include_str!("completions/completions.bash")),
        Shell::Fish => script.push_str(include_str!("completions/completions.fish")),
        Shell::Zsh => {
            script.truncate(script.rfind(ZSH_END).unwrap_or(script.len()));
            script = script.replacen(ZSH_HEAD, "\n_extern4_words() {\n", 1);
            script.push_str(include_str!("completions/completions.zsh"));
        }
        _ => {}
    }
    script
}
