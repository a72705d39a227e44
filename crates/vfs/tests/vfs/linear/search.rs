//! Is there an order of steps that explains a history? Wing and Gong's search, with Lowe's memory
//! of where it has been.

use std::collections::HashSet;
use std::fmt;

use super::model::{Stage, State};
use super::op::{Call, DIRS};

/// A history: the calls of each thread, in the thread's order.
pub(super) type History = Vec<Vec<Call>>;

/// Where the search stands in the calls of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Position {
    calls: usize,
    stage: Stage,
}

/// The furthest that the search came, for who wants to know why a history has no explanation.
pub(super) struct DeadEnd {
    /// Calls explained, in the order of their last steps: thread and index.
    order: Vec<(usize, usize)>,
    positions: Vec<Position>,
    state: State,
}

struct Search<'a> {
    history: &'a History,
    seen: HashSet<(Vec<Position>, State)>,
    positions: Vec<Position>,
    order: Vec<(usize, usize)>,
    deepest: Option<DeadEnd>,
}

/// Looks for an order; `Err` says where it came to an end.
pub(super) fn check(history: &History, dirs: [u64; DIRS]) -> Result<(), Box<DeadEnd>> {
    let mut search = Search {
        history,
        seen: HashSet::new(),
        positions: vec![
            Position {
                calls: 0,
                stage: Stage::Start
            };
            history.len()
        ],
        order: Vec::new(),
        deepest: None,
    };
    if search.go(&State::new(dirs)) {
        return Ok(());
    }
    Err(Box::new(
        search.deepest.expect("the search looked at its start"),
    ))
}

impl Search<'_> {
    /// Goes on from `state` in every possible way until one explains everything.
    fn go(&mut self, state: &State) -> bool {
        let threads = 0..self.history.len();
        if threads.clone().all(|thread| self.current(thread).is_none()) {
            return true;
        }
        if !self.seen.insert((self.positions.clone(), state.clone())) {
            return false;
        }
        if self
            .deepest
            .as_ref()
            .is_none_or(|deepest| self.order.len() > deepest.order.len())
        {
            let order = self.order.clone();
            let positions = self.positions.clone();
            self.deepest = Some(DeadEnd {
                order,
                positions,
                state: state.clone(),
            });
        }
        let mut ways = Vec::new();
        for thread in threads.filter(|&thread| self.may_step(thread)) {
            let call = self.current(thread).expect("it may step");
            for (stage, next) in state.steps(call.op, call.out, self.positions[thread].stage) {
                // A call that ends here and cannot change anything is no obstacle to others: no
                // other order can do better.
                if stage == Stage::Done && call.changes_nothing() {
                    return self.step(thread, stage, &next);
                }
                ways.push((thread, stage, next));
            }
        }
        ways.into_iter()
            .any(|(thread, stage, next)| self.step(thread, stage, &next))
    }

    fn step(&mut self, thread: usize, stage: Stage, next: &State) -> bool {
        let before = self.positions[thread];
        let done = stage == Stage::Done;
        if done {
            self.order.push((thread, before.calls));
            self.positions[thread] = Position {
                calls: before.calls + 1,
                stage: Stage::Start,
            };
        } else {
            self.positions[thread].stage = stage;
        }
        let found = self.go(next);
        if done {
            self.order.pop();
        }
        self.positions[thread] = before;
        found
    }

    fn current(&self, thread: usize) -> Option<&Call> {
        self.history[thread].get(self.positions[thread].calls)
    }

    /// A call may begin only when every call that had ended before has been explained.
    fn may_step(&self, thread: usize) -> bool {
        let Some(call) = self.current(thread) else {
            return false;
        };
        self.positions[thread].stage != Stage::Start
            || (0..self.history.len())
                .filter_map(|other| self.current(other))
                .all(|other| other.end >= call.start)
    }
}

impl fmt::Display for DeadEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "explained so far (thread.call): {:?}", self.order)?;
        for (thread, position) in self.positions.iter().enumerate() {
            writeln!(
                f,
                "thread {thread} stands before call {} at {:?}",
                position.calls, position.stage
            )?;
        }
        write!(f, "with {:#?}", self.state)
    }
}

mod tests {
    use extern4_vfs::{Access, Errno, RenameFlags};

    use super::super::op::{Made, Op, Out, Place, Shape, Who};
    use super::*;

    const A: Place = Place {
        dir: 0,
        name: Some(0),
    };
    const B: Place = Place {
        dir: 0,
        name: Some(1),
    };
    const NONE: RenameFlags = RenameFlags::empty();
    const MAKE: Call = Call {
        op: Op::Make(Made::File, A),
        out: Out::Ino(7),
        start: 0,
        end: 1,
    };
    const LONG_RENAME: Call = Call {
        op: Op::Rename(A, B, NONE),
        out: Out::Done,
        start: 2,
        end: 100,
    };

    fn call(op: Op, out: Out, start: u64) -> Call {
        Call {
            op,
            out,
            start,
            end: start + 1,
        }
    }

    fn find(place: Place, out: Out, start: u64) -> Call {
        call(Op::Find(Who::Root, place), out, start)
    }

    fn explained(history: &[&[Call]]) -> bool {
        let history = history.iter().map(|calls| calls.to_vec()).collect();
        check(&history, [1, 2]).is_ok()
    }

    #[test]
    fn a_file_seen_under_its_new_name_is_gone_from_the_old() {
        let here = Out::Ino(7);
        let gone = Out::Fail(Errno::ENOENT);
        let ends = |first, second| explained(&[&[MAKE, LONG_RENAME], &[first, second]]);
        assert!(ends(find(B, here, 10), find(A, gone, 12)));
        assert!(ends(find(A, here, 10), find(B, here, 12)));
        assert!(ends(find(B, gone, 10), find(A, gone, 12)));
        assert!(!ends(find(B, here, 10), find(A, here, 12)));
        assert!(!ends(find(A, gone, 10), find(B, gone, 12)));
    }

    #[test]
    fn calls_that_ended_before_are_seen() {
        let gone = Out::Fail(Errno::ENOENT);
        assert!(explained(&[&[MAKE], &[find(A, gone, 0)]]));
        assert!(!explained(&[&[MAKE], &[find(A, gone, 2)]]));
        assert!(!explained(&[&[MAKE], &[find(A, Out::Ino(8), 2)]]));
    }

    #[test]
    fn an_acl_that_was_set_counts() {
        let shut = call(Op::SetAcl(A, Some(Shape::Shut)), Out::Done, 2);
        let access = |out, start| call(Op::Access(A, Access::READ), out, start);
        let refused = Out::Fail(Errno::EACCES);
        assert!(explained(&[&[MAKE, shut], &[access(refused, 4)]]));
        assert!(explained(&[
            &[MAKE, Call { end: 9, ..shut }],
            &[access(Out::Done, 4), access(refused, 6)]
        ]));
        assert!(!explained(&[&[MAKE, shut], &[access(Out::Done, 4)]]));
        assert!(!explained(&[
            &[MAKE, Call { end: 9, ..shut }],
            &[access(refused, 4), access(Out::Done, 6)]
        ]));
    }

    #[test]
    fn of_two_removers_one_fails() {
        let unlink = |out, start| call(Op::Unlink(A), out, start);
        let gone = Out::Fail(Errno::ENOENT);
        assert!(explained(&[
            &[MAKE, unlink(Out::Done, 2)],
            &[unlink(gone, 2)]
        ]));
        assert!(!explained(&[
            &[MAKE, unlink(Out::Done, 2)],
            &[unlink(Out::Done, 2)]
        ]));
    }
}
