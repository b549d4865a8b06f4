//! Which loads poll: those whose innermost loop also sleeps.
//!
//! A wait is a loop that loads, looks, and executes `s_sleep` before it looks again. That an iteration ends without
//! `s_sleep` means that what it loaded was accepted. The loops are the natural loops of the control-flow graph.

use crate::machine::action::Action;
use crate::machine::program::Program;
use crate::op::Op;

/// A straight stretch of steps.
#[derive(Debug, Default)]
struct Block {
    end: usize,
    next: Vec<usize>,
    previous: Vec<usize>,
}

/// The steps, from `first` to before `end`, that run in the innermost loop of an `s_sleep`, by step number from `first`.
pub(super) fn polling_steps(program: &Program, first: usize, end: usize) -> Vec<bool> {
    let starts = block_starts(program, first, end);
    let blocks = blocks(program, &starts, end);
    let innermost = innermost_loops(&blocks);
    let loop_of = |step: usize| innermost[starts.partition_point(|&start| start <= step) - 1];
    let sleeps = |step: &usize| matches!(program.step(*step).map(|step| step.action), Some(Action::Sleep));
    let polled: Vec<usize> = (first..end).filter(sleeps).filter_map(loop_of).collect();
    (first..end).map(|step| loop_of(step).is_some_and(|header| polled.contains(&header))).collect()
}

/// Step that a branch may go to, and whether it may also fall through.
fn branch(program: &Program, step: usize) -> Option<(Option<usize>, bool)> {
    let step = program.step(step)?;
    let is_conditional = match step.inst.op {
        Op::SBranch => false,
        Op::SCbranchScc0
        | Op::SCbranchScc1
        | Op::SCbranchVccz
        | Op::SCbranchVccnz
        | Op::SCbranchExecz
        | Op::SCbranchExecnz => true,
        Op::SEndpgm | Op::SEndpgmSaved | Op::SSetpcB64 => return Some((None, false)),
        _ => return None,
    };
    Some((program.find(crate::exec::scalar::branch_target(&step.inst)), is_conditional))
}

fn block_starts(program: &Program, first: usize, end: usize) -> Vec<usize> {
    let mut starts = vec![first];
    for step in first..end {
        if let Some((target, _)) = branch(program, step) {
            starts.extend(target.filter(|target| (first..end).contains(target)));
            starts.extend((step + 1 < end).then_some(step + 1));
        }
    }
    starts.sort_unstable();
    starts.dedup();
    starts
}

fn blocks(program: &Program, starts: &[usize], end: usize) -> Vec<Block> {
    let mut blocks: Vec<Block> = (0..starts.len())
        .map(|at| Block { end: starts.get(at + 1).copied().unwrap_or(end), ..Block::default() })
        .collect();
    for at in 0..blocks.len() {
        let (target, falls) = branch(program, blocks[at].end - 1).unwrap_or((None, true));
        let target = target.and_then(|target| starts.binary_search(&target).ok());
        let through = (falls && at + 1 < blocks.len()).then_some(at + 1);
        for next in target.into_iter().chain(through) {
            blocks[at].next.push(next);
            blocks[next].previous.push(at);
        }
    }
    blocks
}

/// The header of each block's innermost loop.
fn innermost_loops(blocks: &[Block]) -> Vec<Option<usize>> {
    let dominators = dominators(blocks);
    let mut loops: std::collections::BTreeMap<usize, Vec<bool>> = std::collections::BTreeMap::new();
    for (at, block) in blocks.iter().enumerate() {
        for &header in block.next.iter().filter(|&&next| dominates(&dominators, next, at)) {
            let body = loops.entry(header).or_insert_with(|| vec![false; blocks.len()]);
            body[header] = true;
            let mut open = vec![at];
            while let Some(at) = open.pop() {
                if !std::mem::replace(&mut body[at], true) {
                    open.extend(&blocks[at].previous);
                }
            }
        }
    }
    let size = |body: &[bool]| body.iter().filter(|&&inside| inside).count();
    let mut sized: Vec<(usize, usize, &Vec<bool>)> =
        loops.iter().map(|(&header, body)| (size(body), header, body)).collect();
    sized.sort_unstable_by_key(|&(size, header, _)| (size, header));
    (0..blocks.len()).map(|at| sized.iter().find(|(_, _, body)| body[at]).map(|&(_, header, _)| header)).collect()
}

fn dominates(immediate: &[Option<usize>], above: usize, mut below: usize) -> bool {
    while below != above {
        match immediate[below] {
            Some(next) if next != below => below = next,
            _ => return false,
        }
    }
    true
}

/// Immediate dominators from block 0; `None` where control never gets.
fn dominators(blocks: &[Block]) -> Vec<Option<usize>> {
    let order = postorder(blocks);
    let mut rank = vec![0; blocks.len()];
    for (number, &at) in order.iter().enumerate() {
        rank[at] = number;
    }
    let mut immediate = vec![None; blocks.len()];
    immediate[0] = Some(0);
    let mut has_changed = true;
    while has_changed {
        has_changed = false;
        for &at in order.iter().rev().filter(|&&at| at != 0) {
            let known = blocks[at].previous.iter().copied().filter(|&before| immediate[before].is_some());
            let found = known.reduce(|a, b| meet(&immediate, &rank, a, b));
            has_changed |= found != immediate[at];
            immediate[at] = found;
        }
    }
    immediate
}

fn meet(immediate: &[Option<usize>], rank: &[usize], mut a: usize, mut b: usize) -> usize {
    while a != b {
        if rank[a] < rank[b] {
            a = immediate[a].unwrap_or(b);
        } else {
            b = immediate[b].unwrap_or(a);
        }
    }
    a
}

fn postorder(blocks: &[Block]) -> Vec<usize> {
    let mut order = Vec::new();
    let mut is_seen = vec![false; blocks.len()];
    let mut open = vec![(0, 0)];
    is_seen[0] = true;
    while let Some((at, child)) = open.pop() {
        if let Some(&next) = blocks[at].next.get(child) {
            open.push((at, child + 1));
            if !std::mem::replace(&mut is_seen[next], true) {
                open.push((next, 0));
            }
        } else {
            order.push(at);
        }
    }
    order
}
