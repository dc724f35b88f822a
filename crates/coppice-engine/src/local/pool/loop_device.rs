//! Loop devices: a file as a disk.
//!
//! The requests are made here and not by `losetup`, because only then can a
//! device be set up and marked for automatic release in one step: while the
//! descriptor of [`LoopDevice`] is open or the device is mounted it stays, and
//! else it is gone, however this process ended.
#![expect(unsafe_code, reason = "an ioctl takes a structure whose layout only the caller vouches for")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, ioctl};

const CLR_FD: Opcode = 0x4c01;
const GET_STATUS64: Opcode = 0x4c05;
const SET_CAPACITY: Opcode = 0x4c07;
const CONFIGURE: Opcode = 0x4c0a;
const CTL_GET_FREE: Opcode = 0x4c82;

const FLAG_AUTOCLEAR: u32 = 4;
const FLAG_DIRECT_IO: u32 = 16;
/// Direct I/O needs requests as large as the blocks of the disk below; 4 KiB
/// suits every disk and is the unit of btrfs.
const BLOCK_SIZE: u32 = 4096;
/// Others may take the device between asking for a free one and using it.
const ATTEMPTS_MAX: u32 = 16;

/// `struct loop_info64`
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo>() == 232);
const _: () = assert!(size_of::<LoopConfig>() == 304);

/// A loop device with a file behind it, kept open.
#[derive(Debug)]
pub(super) struct LoopDevice {
    file: File,
    number: u32,
}

impl LoopDevice {
    /// The device whose backing file is `image`, by device and inode: the name
    /// it was attached by may be another, or gone.
    pub(super) fn find(image: &File) -> io::Result<Option<Self>> {
        let image = image.metadata()?;
        for entry in fs::read_dir("/sys/block")? {
            let name = entry?.file_name();
            let Some(number) = name.to_str().and_then(|name| name.strip_prefix("loop")) else { continue };
            let Ok(number) = number.parse() else { continue };
            if !Path::new("/sys/block").join(&name).join("loop").exists() {
                continue;
            }
            let Ok(file) = OpenOptions::new().read(true).write(true).open(device_path(number)) else {
                continue;
            };
            // Free devices refuse the question.
            let Ok(info) = status(&file) else { continue };
            if (info.device, info.inode) == (image.dev(), image.ino()) {
                return Ok(Some(Self { file, number }));
            }
        }
        Ok(None)
    }

    /// Puts `image` behind a free device, to be released with its last user.
    pub(super) fn attach(image: &File, name: &Path) -> io::Result<Self> {
        let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
        for _ in 0..ATTEMPTS_MAX {
            // SAFETY: the request takes no argument and returns a number.
            let number = unsafe { ioctl(&control, GetFree) }?;
            let file = OpenOptions::new().read(true).write(true).open(device_path(number))?;
            let config = LoopConfig {
                fd: image.as_raw_fd().cast_unsigned(),
                block_size: BLOCK_SIZE,
                info: LoopInfo::named(name, FLAG_AUTOCLEAR | FLAG_DIRECT_IO),
                reserved: [0; 8],
            };
            // SAFETY: the request takes a loop_config and only reads it;
            // `image` is open, and the kernel takes a reference of its own.
            match unsafe { ioctl(&file, Setter::<CONFIGURE, LoopConfig>::new(config)) } {
                Ok(()) => return Ok(Self { file, number }),
                Err(Errno::BUSY) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::other("every free loop device was taken by someone else"))
    }

    /// For example `/dev/loop3`.
    pub(super) fn path(&self) -> PathBuf {
        device_path(self.number)
    }

    /// Whether it bypasses the page cache, so that data is not kept twice.
    pub(super) fn has_direct_io(&self) -> bool {
        fs::read_to_string(self.sysfs("loop/dio")).is_ok_and(|text| text.trim() == "1")
    }

    /// Keeps anybody from giving blocks of the file back to the host.
    pub(super) fn forbid_discard(&self) -> io::Result<()> {
        fs::write(self.sysfs("queue/discard_max_bytes"), "0")
    }

    /// Its size in bytes.
    pub(super) fn size(&self) -> io::Result<u64> {
        let sectors = fs::read_to_string(self.sysfs("size"))?;
        sectors.trim().parse::<u64>().map(|sectors| sectors * 512).map_err(io::Error::other)
    }

    /// Takes over the size of the file behind it.
    pub(super) fn grow_to_file(&self) -> io::Result<()> {
        // SAFETY: the request takes no argument.
        unsafe { ioctl(&self.file, NoArg::<SET_CAPACITY>::new()) }?;
        Ok(())
    }

    /// Frees the device once nobody uses it. Not needed for one that was
    /// attached here, but for one that somebody else had attached.
    pub(super) fn release(self) -> io::Result<()> {
        // SAFETY: the request takes no argument.
        match unsafe { ioctl(&self.file, NoArg::<CLR_FD>::new()) } {
            Ok(()) | Err(Errno::NXIO) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn sysfs(&self, attribute: &str) -> PathBuf {
        Path::new("/sys/block").join(format!("loop{}", self.number)).join(attribute)
    }
}

impl LoopInfo {
    fn named(name: &Path, flags: u32) -> Self {
        let mut info = Self {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        };
        // For people who list devices; the kernel wants a zero byte at the end.
        let name = name.as_os_str().as_encoded_bytes();
        let length = name.len().min(info.file_name.len() - 1);
        info.file_name[..length].copy_from_slice(&name[..length]);
        info
    }
}

fn status(device: &File) -> rustix::io::Result<LoopInfo> {
    // SAFETY: the request fills in a loop_info64.
    unsafe { ioctl(device, Getter::<GET_STATUS64, LoopInfo>::new()) }
}

fn device_path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

/// `LOOP_CTL_GET_FREE` answers by its return value.
struct GetFree;

// SAFETY: the request reads and writes no memory of ours.
unsafe impl Ioctl for GetFree {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut rustix::ffi::c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(
        answer: IoctlOutput,
        _: *mut rustix::ffi::c_void,
    ) -> rustix::io::Result<Self::Output> {
        Ok(answer.cast_unsigned())
    }
}
