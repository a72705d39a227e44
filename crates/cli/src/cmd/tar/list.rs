//! `tar -t`.

use std::io;

use extern4::build::{Entry, Sink, SourceError};
use extern4::tar::Members;

use super::member_line::MemberLines;
use super::{Args, misused};
use crate::app::App;
use crate::exit_status::ExitStatus;
use crate::text::escape;

/// Prints members.
struct Listing<'a> {
    members: &'a Members,
    lines: MemberLines,
    app: &'a mut App,
}

impl Sink for Listing<'_> {
    fn entry(&mut self, entry: Entry) -> Result<(), SourceError> {
        if self.members.has(&entry) {
            let line = self.lines.line(&entry);
            self.app.print(line);
        }
        Ok(())
    }

    fn remove(&mut self, _: &[u8]) -> Result<(), SourceError> {
        Ok(())
    }

    fn clear(&mut self, _: &[u8]) -> Result<(), SourceError> {
        Ok(())
    }

    fn warn(&mut self, message: String) {
        self.app.note(message);
    }
}

pub(super) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    if args.directory.is_some() {
        misused(app, "-C has no effect on -t");
        return Ok(());
    }
    let members = args.members(&args.paths);
    let lines = MemberLines::new(args.verbose > 0, args.full_time);
    let listed = args
        .archive(&std::env::temp_dir(), app)
        .and_then(|archive| {
            archive.list(&mut Listing {
                members: &members,
                lines,
                app: &mut *app,
            })
        });
    match listed {
        Ok(()) => report_missing(&members, app),
        Err(error) => app.fail(ExitStatus::Failed, error),
    }
    Ok(())
}

/// Reports names that the archive does not have.
pub(super) fn report_missing(members: &Members, app: &mut App) {
    for name in members.missing() {
        app.fail_at(ExitStatus::Failed, escape(name), "Not found in archive");
    }
}
