//! HIP's statuses by name, and what to do about those that are known.

use std::fmt;

/// A `hipError_t` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub i32);

const RERUN: &str =
    "the failure came from an earlier launch; rerun with AMD_SERIALIZE_KERNEL=3 to see which, and read \
                     `dmesg`; on the emulator the same launch names the access";
const CAPTURE: &str = "a call that must not happen during a capture was made on this thread, or the capture was lost; \
                       allocate, load and import before the first capture";

impl Status {
    /// HIP's name for it, where it is one that this package's calls meet.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            1 => "hipErrorInvalidValue",
            2 => "hipErrorOutOfMemory",
            3 => "hipErrorNotInitialized",
            4 => "hipErrorDeinitialized",
            9 => "hipErrorInvalidConfiguration",
            17 => "hipErrorInvalidDevicePointer",
            21 => "hipErrorInvalidMemcpyDirection",
            35 => "hipErrorInsufficientDriver",
            53 => "hipErrorPriorLaunchFailure",
            98 => "hipErrorInvalidDeviceFunction",
            100 => "hipErrorNoDevice",
            101 => "hipErrorInvalidDevice",
            200 => "hipErrorInvalidImage",
            201 => "hipErrorInvalidContext",
            205 => "hipErrorMapFailed",
            206 => "hipErrorUnmapFailed",
            209 => "hipErrorNoBinaryForGpu",
            217 => "hipErrorPeerAccessUnsupported",
            304 => "hipErrorOperatingSystem",
            400 => "hipErrorInvalidHandle",
            401 => "hipErrorIllegalState",
            500 => "hipErrorNotFound",
            600 => "hipErrorNotReady",
            700 => "hipErrorIllegalAddress",
            701 => "hipErrorLaunchOutOfResources",
            702 => "hipErrorLaunchTimeOut",
            704 => "hipErrorPeerAccessAlreadyEnabled",
            709 => "hipErrorContextIsDestroyed",
            710 => "hipErrorAssert",
            712 => "hipErrorHostMemoryAlreadyRegistered",
            713 => "hipErrorHostMemoryNotRegistered",
            719 => "hipErrorLaunchFailure",
            720 => "hipErrorCooperativeLaunchTooLarge",
            801 => "hipErrorNotSupported",
            900 => "hipErrorStreamCaptureUnsupported",
            901 => "hipErrorStreamCaptureInvalidated",
            902 => "hipErrorStreamCaptureMerge",
            903 => "hipErrorStreamCaptureUnmatched",
            904 => "hipErrorStreamCaptureUnjoined",
            905 => "hipErrorStreamCaptureIsolation",
            906 => "hipErrorStreamCaptureImplicit",
            907 => "hipErrorCapturedEvent",
            908 => "hipErrorStreamCaptureWrongThread",
            910 => "hipErrorGraphExecUpdateFailure",
            999 => "hipErrorUnknown",
            _ => return None,
        })
    }

    /// What to do about it when `function` returned it.
    pub fn hint(self, function: &str) -> &'static str {
        match (self.0, function) {
            (17 | 201, "hipIpcOpenMemHandle") => {
                "containers of one deployment must share the ipc, pid and network namespaces: --ipc host --pid host \
                 --network host"
            }
            (2, _) => "free device memory, or leave the engine less of it (`--gpu-memory-utilization`)",
            (100 | 101, _) => "compare ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES with what `doctor` lists",
            (98 | 200 | 209, _) => "the code object is for gfx950; `doctor` names the GPU that is here",
            (500, "hipModuleGetFunction") => "the code object is of another version than the driver; reinstall both",
            (217, _) => "the GPUs must reach each other; `doctor` shows which pairs cannot",
            (9 | 701 | 720, _) => "every workgroup must be resident at once: no other work, no CU mask, no partitions",
            (53 | 700 | 702 | 709 | 710 | 719, _) => RERUN,
            (900..=908, _) => CAPTURE,
            (712 | 713, _) => "host memory is registered once and unregistered once",
            _ => "check that the user may open /dev/kfd and that the driver is loaded; `doctor` looks at both",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "status {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_fits_the_call_and_the_status() {
        let hint = |status, function| Status(status).hint(function);
        for status in [17, 201] {
            assert!(hint(status, "hipIpcOpenMemHandle").contains("--ipc host --pid host --network host"));
            assert!(!hint(status, "hipFree").contains("--ipc"));
        }
        assert!(hint(2, "hipMalloc").contains("free device memory"));
        assert!(hint(209, "hipModuleLoadData").contains("gfx950"));
        assert!(hint(719, "hipStreamSynchronize").contains("emulator"));
        assert!(hint(900, "hipMalloc").contains("capture"));
        assert!(hint(4711, "hipMalloc").contains("/dev/kfd"));
    }

    #[test]
    fn a_status_shows_its_name_and_number() {
        assert_eq!(Status(209).to_string(), "hipErrorNoBinaryForGpu (209)");
        assert_eq!(Status(4711).to_string(), "status 4711");
    }
}
