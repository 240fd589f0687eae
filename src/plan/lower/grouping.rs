//! GROUP BY: its expressions and its grouping sets.

use std::collections::BTreeMap;

use datafusion_expr::{Expr, GroupingSet};

use crate::plan::grouping_id;

/// The GROUP BY of an aggregation, taken apart.
pub(super) struct Grouping {
    /// The expressions, each once, in the order of the output's columns.
    pub(super) exprs: Vec<Expr>,
    /// For each grouping set, which expressions are in it. `None`: the plain grouping.
    pub(super) sets: Option<Vec<Vec<bool>>>,
}

impl Grouping {
    /// Takes the expressions of GROUP BY apart.
    pub(super) fn of(group: &[Expr]) -> Self {
        let [Expr::GroupingSet(set)] = group else {
            return Self { exprs: group.to_vec(), sets: None };
        };
        let exprs: Vec<Expr> = set.distinct_expr().into_iter().cloned().collect();
        let sets: Vec<Vec<&Expr>> = match set {
            GroupingSet::GroupingSets(sets) => sets.iter().map(|set| set.iter().collect()).collect(),
            GroupingSet::Rollup(exprs) => {
                (0..=exprs.len()).rev().map(|length| exprs[..length].iter().collect()).collect()
            }
            GroupingSet::Cube(exprs) => (0..1_usize << exprs.len())
                .rev()
                .map(|mask| {
                    let chosen = |index: &usize| mask >> (exprs.len() - 1 - index) & 1 == 1;
                    (0..exprs.len()).filter(chosen).map(|index| &exprs[index]).collect()
                })
                .collect(),
        };
        let members = sets.iter().map(|set| exprs.iter().map(|expr| set.contains(&expr)).collect()).collect();
        Self { exprs, sets: Some(members) }
    }

    /// For each set, which of `keys` are NULL in it.
    pub(super) fn masks(&self, keys: &[usize]) -> Option<Vec<Vec<bool>>> {
        let sets = self.sets.as_ref()?;
        Some(sets.iter().map(|set| keys.iter().map(|key| !set[*key]).collect()).collect())
    }

    /// The ids over all expressions by the ids over `keys` alone.
    pub(super) fn ids(&self, keys: &[usize]) -> BTreeMap<u64, u64> {
        let all: Vec<usize> = (0..self.exprs.len()).collect();
        let ours = self.masks(keys).unwrap_or_default();
        let theirs = self.masks(&all).unwrap_or_default();
        (0..ours.len()).map(|set| (grouping_id(&ours, set), grouping_id(&theirs, set))).collect()
    }
}

#[cfg(test)]
mod tests {
    use datafusion_expr::col;

    use super::*;

    #[test]
    fn rollup_and_cube_are_lists_of_sets() {
        let rollup = Grouping::of(&[Expr::GroupingSet(GroupingSet::Rollup(vec![col("a"), col("b")]))]);
        assert_eq!(rollup.sets, Some(vec![vec![true, true], vec![true, false], vec![false, false]]));
        let cube = Grouping::of(&[Expr::GroupingSet(GroupingSet::Cube(vec![col("a"), col("b")]))]);
        let sets = vec![vec![true, true], vec![true, false], vec![false, true], vec![false, false]];
        assert_eq!(cube.sets, Some(sets));
        assert_eq!(Grouping::of(&[col("a")]).sets, None);
    }

    #[test]
    fn ids_count_all_expressions_where_masks_count_keys() {
        let set = |names: &[&str]| names.iter().map(|name| col(*name)).collect::<Vec<_>>();
        let sets = GroupingSet::GroupingSets(vec![set(&["k", "w"]), set(&["w"])]);
        let grouping = Grouping::of(&[Expr::GroupingSet(sets)]);
        // Over (k, w), the set without k has bit 1; over the key k alone it has bit 0.
        assert_eq!(grouping.ids(&[0]), BTreeMap::from([(0, 0), (1, 2)]));
        assert_eq!(grouping.masks(&[0]), Some(vec![vec![false], vec![true]]));
    }
}
