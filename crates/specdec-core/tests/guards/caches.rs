//! Every message against bound KDA states, word for word.

use specdec_core::guards::{cache_reasons, CacheFacts, Dtype, TensorFacts};

use crate::model::{cache, shard};

fn reasons(cache: CacheFacts) -> Vec<String> {
    cache_reasons(&shard(), Some(7), &[cache]).iter().map(ToString::to_string).collect()
}

fn conv(change: impl FnMut(&mut TensorFacts)) -> Vec<String> {
    let mut facts = cache("kda.1");
    facts.conv.as_mut().into_iter().for_each(change);
    reasons(facts)
}

fn recurrent(change: impl FnMut(&mut TensorFacts)) -> Vec<String> {
    let mut facts = cache("kda.1");
    facts.recurrent.as_mut().into_iter().for_each(change);
    reasons(facts)
}

#[test]
fn both_layouts_are_served() {
    assert_eq!(reasons(cache("kda.1")), [""; 0], "SD");
    assert_eq!(conv(|conv| conv.strides = vec![1 << 20, 10, 1]), [""; 0], "DS");
}

#[test]
fn upstreams_messages() {
    assert_eq!(conv(|conv| conv.dtype = Dtype::Float32), ["kda.1: conv state torch.float32, needs bf16"]);
    let found = recurrent(|recurrent| recurrent.dtype = Dtype::Bfloat16);
    assert_eq!(found, ["kda.1: recurrent state torch.bfloat16, needs fp32"]);
    let dense = "kda.1: a slot's recurrent state must be dense";
    assert_eq!(recurrent(|recurrent| recurrent.strides[1] = 16388), [dense]);
    assert_eq!(recurrent(|recurrent| recurrent.strides.swap(2, 3)), [dense]);
    let other = recurrent(|recurrent| recurrent.shape.0[1] = 96);
    assert_eq!(other[0], dense);
}

#[test]
fn our_messages_on_shapes() {
    let found = recurrent(|recurrent| {
        recurrent.shape.0 = vec![40, 12, 16384];
        recurrent.strides = vec![1 << 19, 16384, 1];
    });
    let needed = "kernels read (slots, 12, 128, 128)";
    assert_eq!(found, [format!("kda.1: recurrent state (40, 12, 16384), {needed}")]);
    assert_eq!(
        conv(|conv| conv.shape.0[1] = 4600),
        ["kda.1: conv state (40, 4600, 10), kernels read (slots, 4608, entries)"]
    );
    // The layout of the other setting: entries and channels change places.
    assert_eq!(
        conv(|conv| conv.shape.0.swap(1, 2)),
        ["kda.1: conv state (40, 10, 4608), kernels read (slots, 4608, entries)"]
    );
    assert_eq!(conv(|conv| conv.shape.0[2] = 9), ["kda.1: 9 conv state entries, 10 needed at 7 speculative tokens"]);
    let none = CacheFacts { conv: None, ..cache("kda.1") };
    assert_eq!(reasons(none), ["kda.1: no conv state"]);
    let none = CacheFacts { recurrent: None, ..cache("kda.1") };
    assert_eq!(reasons(none), ["kda.1: no recurrent state"]);
}

#[test]
fn our_messages_on_slots() {
    assert_eq!(conv(|conv| conv.shape.0[0] = 39), ["kda.1: 39 slots of conv state and 40 of recurrent state"]);
    let slots = |count| {
        let mut facts = cache("kda.1");
        for state in [&mut facts.conv, &mut facts.recurrent].into_iter().flatten() {
            state.shape.0[0] = count;
        }
        reasons(facts)
    };
    assert_eq!(slots(0), ["kda.1: 0 slots, kernels serve 1 to 2147483647"]);
    assert_eq!(slots(1), [""; 0]);
    assert_eq!(slots(1 << 31), ["kda.1: 2147483648 slots, kernels serve 1 to 2147483647"]);
}

#[test]
fn our_messages_on_strides_and_places() {
    assert_eq!(
        conv(|conv| conv.strides = vec![1 << 62, 1 << 40, 1]),
        ["kda.1: conv state stride 1099511627776 a channel (4294967295 at most)"]
    );
    // Nine strides of 2^29 elements wrap in the 32 bits in which the kernels count entries.
    assert_eq!(
        conv(|conv| conv.strides = vec![1 << 62, 1, 1 << 29]),
        ["kda.1: conv state stride 536870912 a entry (477218588 at most)"]
    );
    assert_eq!(
        conv(|conv| conv.strides = vec![1 << 20, 0, 4608]),
        ["kda.1: conv state overlaps itself: shape (40, 4608, 10), strides (1048576, 0, 4608)"]
    );
    assert_eq!(
        conv(|conv| conv.strides[0] = 46079),
        ["kda.1: conv state overlaps itself: shape (40, 4608, 10), strides (46079, 1, 4608)"]
    );
    assert_eq!(
        recurrent(|recurrent| recurrent.strides[0] = 196_604),
        ["kda.1: recurrent state overlaps itself: shape (40, 12, 128, 128), strides (196604, 16384, 128, 1)"]
    );
    let aligned = "kernels load 16 bytes at a time: a multiple";
    assert_eq!(
        recurrent(|recurrent| recurrent.strides[0] = 196_610),
        [format!("kda.1: recurrent state stride 196610 a slot, {aligned} of 4 elements")]
    );
    assert_eq!(
        recurrent(|recurrent| recurrent.address = 0x1008),
        [format!("kda.1: recurrent state address 0x1008, {aligned} is needed")]
    );
    assert_eq!(conv(|conv| conv.address = 0), ["kda.1: conv state no memory (address 0)"]);
}

#[test]
fn upstreams_reasons_of_all_layers_come_first() {
    let mut first = cache("kda.1");
    first.conv.iter_mut().for_each(|conv| conv.shape.0[2] = 12);
    let mut second = cache("kda.2");
    second.recurrent.iter_mut().for_each(|recurrent| recurrent.strides[2] = 256);
    let found: Vec<String> =
        cache_reasons(&shard(), Some(7), &[first.clone(), second]).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "kda.2: a slot's recurrent state must be dense",
            "kda.1: 12 conv state entries, 10 needed at 7 speculative tokens"
        ]
    );
    assert_eq!(cache_reasons(&shard(), None, &[first]).len(), 0, "the number of drafts is not known");
}
