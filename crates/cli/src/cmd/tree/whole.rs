//! The facts about a whole tree: sums of sizes, and directories in which nothing is shown.
//!
//! `tree` collects all items for it.

use super::args::Args;
use super::entry::Item;

/// Returns the items that are shown, with their sums. They come in the order of the tree.
pub(super) fn settled(args: &Args, items: Vec<Item>) -> Vec<Item> {
    let mut shown: Vec<Item> = Vec::with_capacity(items.len());
    // From the end, so that what is in a directory comes before it. `below` has, for each depth,
    // the sum of the items since the directory that they are in.
    let mut below: Vec<Sum> = Vec::new();
    for mut item in items.into_iter().rev() {
        below.resize_with(below.len().max(item.depth + 2), Sum::default);
        let inside = std::mem::take(&mut below[item.depth + 1]);
        item.has_children = inside.count > 0;
        let is_empty = !item.has_children && item.entry.is_directory() && !item.is_matched;
        if args.prune && !args.directories && is_empty && item.depth > 0 {
            continue;
        }
        if args.du {
            item.size = item.size.saturating_add(inside.bytes);
        }
        let siblings = &mut below[item.depth];
        item.is_last = siblings.count == 0;
        siblings.count += 1;
        siblings.bytes = siblings.bytes.saturating_add(item.size);
        shown.push(item);
    }
    shown.reverse();
    shown
}

/// The items of a directory so far.
#[derive(Default)]
struct Sum {
    count: usize,
    bytes: u64,
}
