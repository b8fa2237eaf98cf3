//! Regions: sets of combinations of input values. A region is described by a list of conditions. A combination lies in
//! the region if one of the conditions holds for it; two conditions never hold for the same combination.

use std::collections::{BTreeMap, BTreeSet};

use super::cells::CellBox;
use super::predicates::SplitInputs;

/// Returns conditions that describe the region which consists of `boxes`. For each combination of input values in a
/// box, exactly one of the conditions holds. For every other combination, none holds.
pub fn describe_region(split: &SplitInputs<'_>, boxes: Vec<CellBox>) -> Vec<String> {
    let count = split.partitions.len().saturating_add(split.predicates.len());
    let order: Vec<usize> = (0..count).collect();
    let reversed: Vec<usize> = (0..count).rev().collect();
    let forward = merge_boxes(boxes.clone(), &order);
    let backward = merge_boxes(boxes, &reversed);
    let boxes = if backward.len() < forward.len() { backward } else { forward };
    boxes.iter().map(|one| describe_box(split, one)).collect()
}

/// Merges boxes that differ in only one dimension (the cells of one input, or the results of one predicate), dimension
/// by dimension, until nothing changes.
fn merge_boxes(mut boxes: Vec<CellBox>, order: &[usize]) -> Vec<CellBox> {
    loop {
        let before = boxes.len();
        for at in order {
            let mut merged: BTreeMap<CellBox, BTreeSet<usize>> = BTreeMap::new();
            for mut one in boxes {
                let own = one.get_mut(*at).map(std::mem::take).unwrap_or_default();
                merged.entry(one).or_default().extend(own);
            }
            boxes = merged
                .into_iter()
                .map(|(mut one, own)| {
                    if let Some(slot) = one.get_mut(*at) {
                        *slot = own;
                    }
                    one
                })
                .collect();
        }
        if boxes.len() == before {
            return boxes;
        }
    }
}

fn describe_box(split: &SplitInputs<'_>, chosen: &CellBox) -> String {
    let (cells, results) = chosen.split_at_checked(split.partitions.len()).unwrap_or((chosen, &[]));
    let of_inputs = split.partitions.iter().zip(cells).filter_map(|(partition, cells)| partition.describe(cells));
    let of_predicates = split.predicates.iter().zip(results).filter_map(|(predicate, results)| {
        match (results.contains(&0), results.contains(&1)) {
            (false, true) => Some(predicate.text.clone()),
            (true, false) => Some(format!("!({})", predicate.text)),
            (true, true) | (false, false) => None,
        }
    });
    let terms: Vec<String> = of_inputs.chain(of_predicates).collect();
    if terms.is_empty() { "true".to_owned() } else { terms.join(" && ") }
}
