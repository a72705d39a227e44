//! Rounds: the sides of a comparison, measured in turn.
//!
//! The lab and `xtask bench` measure through it. Each side gets the same number of figures, and
//! each round begins with another side, so that no side always comes first after a disturbance.

/// Takes a figure of each of `sides` sides in each of `rounds` rounds, so that a disturbance of the
/// machine meets all sides. Each round begins with another side. A first round is thrown away: it
/// warms caches.
///
/// # Errors
/// The first error of a side.
pub fn interleave<T, E>(
    rounds: usize,
    sides: usize,
    mut take: impl FnMut(usize) -> Result<T, E>,
) -> Result<Vec<Vec<T>>, E> {
    let mut taken: Vec<Vec<T>> = (0..sides).map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..=rounds {
        for side in order(round, sides) {
            let figure = take(side)?;
            if round > 0 {
                taken[side].push(figure);
            }
        }
    }
    Ok(taken)
}

/// Returns the order of the sides in a round.
pub fn order(round: usize, sides: usize) -> impl Iterator<Item = usize> {
    (0..sides).map(move |turn| (round + turn) % sides)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_take_turns_and_the_first_round_does_not_count() {
        let mut asked = Vec::new();
        let taken = interleave(2, 3, |side| {
            asked.push(side);
            Ok::<_, ()>(asked.len())
        });
        assert_eq!(asked[..6], [0, 1, 2, 1, 2, 0]);
        assert_eq!(taken, Ok(vec![vec![6, 8], vec![4, 9], vec![5, 7]]));
        assert_eq!(
            interleave(2, 2, |side| if side == 1 { Err(side) } else { Ok(()) }),
            Err(1)
        );
    }
}
