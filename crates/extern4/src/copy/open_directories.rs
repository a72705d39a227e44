//! Directories inside each other, of which only the innermost stay open.
//!
//! `walk` has the originals in it, and `out_of::host_tree` the copies. So trees of any depth need
//! few descriptors.

/// Directories that stay open, not counting the base.
const MAX_OPEN: usize = 64;

/// Directories `D` from one that stays open down to the innermost, each with what its user keeps
/// for it. One further up is closed, and opened again when it becomes the innermost.
pub(super) struct OpenDirectories<D, T> {
    base: D,
    levels: Vec<Level<D, T>>,
}

struct Level<D, T> {
    directory: Option<D>,
    kept: T,
}

impl<D, T> OpenDirectories<D, T> {
    pub(super) fn new(base: D) -> Self {
        Self {
            base,
            levels: Vec::new(),
        }
    }

    pub(super) fn base(&self) -> &D {
        &self.base
    }

    /// Returns what is kept for each directory below the base.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.levels.iter().map(|level| &level.kept)
    }

    /// Returns what is kept for the innermost directory; `None` for the base.
    pub(super) fn last_mut(&mut self) -> Option<&mut T> {
        self.levels.last_mut().map(|level| &mut level.kept)
    }

    pub(super) fn push(&mut self, directory: D, kept: T) {
        self.levels.push(Level {
            directory: Some(directory),
            kept,
        });
        self.close_far(self.levels.len() - 1);
    }

    pub(super) fn pop(&mut self) {
        self.levels.pop();
    }

    /// Returns the innermost directory. `open` opens one again in the directory above it.
    pub(super) fn innermost<E>(&mut self, open: impl Fn(&D, &T) -> Result<D, E>) -> Result<&D, E> {
        let first_closed = self
            .levels
            .iter()
            .rposition(|level| level.directory.is_some())
            .map_or(0, |last_open| last_open + 1);
        for at in first_closed..self.levels.len() {
            let directory = open(self.above(at), &self.levels[at].kept)?;
            self.levels[at].directory = Some(directory);
            self.close_far(at);
        }
        Ok(self.above(self.levels.len()))
    }

    /// Returns the directory above level `at`, which is open.
    fn above(&self, at: usize) -> &D {
        let above = at.checked_sub(1).map(|above| &self.levels[above].directory);
        above.map_or(&self.base, |above| above.as_ref().expect("it is open"))
    }

    /// Closes the directory that is too far above level `at` to stay open.
    fn close_far(&mut self, at: usize) {
        if let Some(far) = at.checked_sub(MAX_OPEN) {
            self.levels[far].directory = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use super::{MAX_OPEN, OpenDirectories};

    #[test]
    fn directories_far_above_are_opened_again() {
        const DEPTH: usize = 3 * MAX_OPEN;
        let mut stack = OpenDirectories::new(String::from("base"));
        for depth in 0..DEPTH {
            stack.push(format!("first {depth}"), depth);
        }
        let opened = Cell::new(0);
        for depth in (0..DEPTH).rev() {
            let found = stack.innermost(|_, depth| {
                opened.set(opened.get() + 1);
                Ok::<_, Infallible>(format!("again {depth}"))
            });
            let is_open = depth >= DEPTH - MAX_OPEN;
            let how = if is_open { "first" } else { "again" };
            assert_eq!(found, Ok(&format!("{how} {depth}")));
            assert!(
                stack
                    .levels
                    .iter()
                    .flat_map(|level| &level.directory)
                    .count()
                    <= MAX_OPEN
            );
            stack.pop();
        }
        // Two times: all that are closed, and once more the upper half of them.
        assert_eq!(opened.get(), DEPTH - MAX_OPEN + (DEPTH - 2 * MAX_OPEN));
        assert_eq!(stack.innermost(|_, _| Err(())), Ok(&String::from("base")));
    }
}
