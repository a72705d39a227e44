//! The comparison of two trees by the library, and the messages about what cannot be compared.

use extern4::diff::{self, Both, Difference, Options};

use super::Args;
use super::operand::NamedTree;
use crate::app::App;

/// Compares two trees. Reports what cannot be compared.
pub(super) fn compare(args: &Args, trees: &Both<NamedTree>, app: &mut App) -> Vec<Difference> {
    let options = Options {
        owners: !args.no_owner,
        times: !args.no_times,
        flags: !args.no_flags,
        xattrs: !args.no_xattrs,
        ..Options::default()
    };
    let found = diff::compare(trees.as_ref().map(|named| &named.tree), &options);
    for warning in &found.warnings {
        app.note(format_args!("warning: {warning}"));
    }
    for (tree, faults) in [
        (&trees.old, &found.faults.old),
        (&trees.new, &found.faults.new),
    ] {
        faults
            .iter()
            .for_each(|fault| tree.report(&fault.path, &fault.error, app));
    }
    found.differences
}
