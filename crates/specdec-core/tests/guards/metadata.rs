//! State slots and accepted counts: what a launch takes, and every message.

use specdec_core::guards::{state_group, Dtype, TensorFacts};

use crate::model::tensor;

fn indices() -> TensorFacts {
    tensor(0x1000, &[2, 4], "int32")
}

fn counts() -> TensorFacts {
    tensor(0x2000, &[2], "int32")
}

fn reasons(indices: Option<&TensorFacts>, counts: Option<&TensorFacts>) -> Vec<String> {
    state_group("kda.1", 2, 4, indices, counts).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

fn changed(change: impl FnOnce(&mut TensorFacts, &mut TensorFacts)) -> Vec<String> {
    let (mut indices, mut counts) = (indices(), counts());
    change(&mut indices, &mut counts);
    reasons(Some(&indices), Some(&counts))
}

#[test]
fn a_view_of_a_block_table_is_taken_with_its_row_stride() {
    let mut view = tensor(0x1000, &[5, 9], "int32");
    view.strides = vec![4096, 1];
    let group = state_group("kda.1", 2, 4, Some(&view), Some(&tensor(0x2000, &[8], "int32")));
    let group = group.map(|group| (group.state_indices, group.row_stride, group.num_accepted));
    assert_eq!(group, Ok((0x1000, 4096, 0x2000)));
}

#[test]
fn strides_that_nobody_steps_do_not_matter() {
    let mut single = tensor(0x1000, &[1, 1], "int32");
    single.strides = vec![0, 7];
    let mut count = tensor(0x2000, &[1], "int32");
    count.strides = vec![5];
    let group = state_group("kda.1", 1, 1, Some(&single), Some(&count));
    assert_eq!(group.map(|group| group.row_stride), Ok(1));
}

#[test]
fn every_message() {
    let found = reasons(None, None);
    assert_eq!(found, ["kda.1: no spec_state_indices_tensor", "kda.1: no num_accepted_tokens"]);
    assert_eq!(
        changed(|indices, counts| {
            indices.dtype = Dtype::from("int64".to_owned());
            counts.dtype = Dtype::Float32;
        }),
        [
            "kda.1: spec_state_indices_tensor torch.int64, kernels read torch.int32",
            "kda.1: num_accepted_tokens torch.float32, kernels read torch.int32",
        ]
    );
    assert_eq!(
        changed(|indices, counts| {
            indices.shape.0[0] = 1;
            counts.shape.0[0] = 1;
        }),
        [
            "kda.1: spec_state_indices_tensor (1, 4), (2, 4) or more needed",
            "kda.1: num_accepted_tokens (1,), (2,) or more needed",
        ]
    );
    assert_eq!(
        changed(|indices, _| indices.shape.0[1] = 3),
        ["kda.1: spec_state_indices_tensor (2, 3), (2, 4) or more needed"]
    );
    assert_eq!(
        changed(|indices, counts| {
            indices.strides = vec![3, 2];
            counts.strides = vec![0];
        }),
        [
            "kda.1: spec_state_indices_tensor stride 3 a row, kernels need 4 to 4294967295",
            "kda.1: spec_state_indices_tensor stride 2 a column, kernels need 1",
            "kda.1: num_accepted_tokens stride 0 a request, kernels need 1",
        ]
    );
    assert_eq!(
        changed(|indices, counts| {
            indices.address = 0x1002;
            counts.address = 0;
        }),
        [
            "kda.1: spec_state_indices_tensor address 0x1002, kernels load 4 bytes at a time: a multiple is needed",
            "kda.1: num_accepted_tokens no memory (address 0)",
        ]
    );
}
