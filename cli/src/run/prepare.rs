//! From what the user calls an application to something that can be started.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::uhyve::{self, UhyveImage};
use crate::build::{Builder, CargoRun, Project, build_app, build_loader, resolve_project};
use crate::host::Host;
use crate::image::{ImageKind, inspect};
use crate::spec::Platform;
use crate::toolchain::{Choice, find};
use crate::workspace::Workspace;

/// What the tool works with: the machine, the checkout and the choices of the command line.
pub struct Tool<'a> {
    /// The machine.
    pub host: &'a dyn Host,
    /// Dolmen's checkout.
    pub workspace: Workspace,
    /// Which toolchain builds images.
    pub choice: Choice,
    /// Whether cargo's output is shown.
    pub verbose: bool,
}

impl Tool<'_> {
    /// A builder of images, with the toolchain found.
    pub fn builder(&self) -> Result<Builder> {
        Ok(Builder {
            workspace: self.workspace.clone(),
            toolchain: find(self.host, &self.choice)?,
            verbose: self.verbose,
        })
    }

    /// The cargo that builds for this host: the one the `dolmen` script found, or the first in
    /// `PATH`.
    pub fn host_cargo(&self) -> Result<PathBuf> {
        self.host
            .env("DOLMEN_HOST_CARGO")
            .map(PathBuf::from)
            .or_else(|| self.host.find_program("cargo"))
            .context("cargo is not installed: on Debian and Ubuntu `apt-get install cargo-web`")
    }

    /// A command that runs [`Tool::host_cargo`], with the compiler that belongs to it.
    pub fn host_cargo_command(&self) -> Result<Command> {
        let mut command = Command::new(self.host_cargo()?);
        if let Some(rustc) = self.host.env("DOLMEN_HOST_RUSTC") {
            command.env("RUSTC", rustc);
        }
        Ok(command)
    }

    /// QEMU's emulator of x86-64.
    pub fn qemu(&self) -> Result<PathBuf> {
        self.host.find_program("qemu-system-x86_64").context(
            "QEMU (qemu-system-x86_64) is not installed: on Debian and Ubuntu `apt-get install qemu-system-x86`",
        )
    }
}

/// An application as the user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum App {
    /// A binary of a Cargo project.
    Project {
        /// The project's folder.
        directory: PathBuf,
        /// The binary, where it has several.
        binary: Option<String>,
    },
    /// A finished image.
    Image(PathBuf),
}

impl App {
    /// Understands `equake`, `microbench`, a folder, or an image file.
    pub fn resolve(workspace: &Workspace, name: &str, binary: Option<&str>) -> Result<Self> {
        if name == "equake" || name == "microbench" {
            let folder = format!("apps/{name}");
            if !workspace.has_crate(&folder) {
                bail!("{name} is not in this checkout yet ({folder}/)");
            }
            return Ok(Self::Project {
                directory: workspace.root().join(folder),
                binary: Some(binary.unwrap_or(name).to_owned()),
            });
        }
        let path = Path::new(name);
        if path.is_dir() {
            return Ok(Self::Project {
                directory: path.to_owned(),
                binary: binary.map(str::to_owned),
            });
        }
        if path.file_name().is_some_and(|file| file == "Cargo.toml") && path.is_file() {
            let directory = path.parent().filter(|p| !p.as_os_str().is_empty());
            return Ok(Self::Project {
                directory: directory.unwrap_or(Path::new(".")).to_owned(),
                binary: binary.map(str::to_owned),
            });
        }
        if !path.exists() {
            bail!(
                "there is no application '{name}': give equake, microbench, the folder of a Cargo project or an image file"
            );
        }
        if binary.is_some() {
            bail!("--bin has no meaning for the image file {name}");
        }
        Ok(Self::Image(path.to_owned()))
    }
}

/// An image ready to boot.
#[derive(Debug, Clone)]
pub struct Image {
    /// The application's name.
    pub app: String,
    /// The image.
    pub file: PathBuf,
    /// Its form.
    pub kind: ImageKind,
    /// The loader.
    pub loader: PathBuf,
    /// The emulator.
    pub qemu: PathBuf,
}

/// A program of this Linux ready to start.
#[derive(Debug, Clone)]
pub struct Process {
    /// The application's name.
    pub app: String,
    /// The program.
    pub executable: PathBuf,
}

/// Something that can be started.
#[derive(Debug, Clone)]
pub enum Prepared {
    /// On an emulated machine.
    Image(Image),
    /// Under uhyve.
    Uhyve(UhyveImage),
    /// On this Linux.
    Process(Process),
}

impl Prepared {
    /// The application's name.
    pub fn app(&self) -> &str {
        match self {
            Self::Image(image) => &image.app,
            Self::Uhyve(image) => &image.app,
            Self::Process(process) => &process.app,
        }
    }
}

/// Fails if runs on `platform` are not possible yet.
pub fn check_platform(platform: Platform) -> Result<()> {
    match platform {
        Platform::Qemu | Platform::Uhyve | Platform::Linux => Ok(()),
        Platform::LinuxVm => {
            bail!("the platform {platform} is not available yet (available: qemu, uhyve, linux)")
        }
    }
}

/// What runs an image.
enum Monitor {
    Qemu(PathBuf),
    Uhyve(uhyve::Place),
}

/// Builds what a run of `app` on `platform` needs.
pub fn prepare(tool: &Tool<'_>, app: &App, platform: Platform) -> Result<Prepared> {
    check_platform(platform)?;
    if platform == Platform::Linux {
        return prepare_process(tool, app).map(Prepared::Process);
    }
    // What is cheap to find missing is looked for before anything is built.
    let monitor = match platform {
        Platform::Uhyve => Monitor::Uhyve(uhyve::place(tool)?),
        _ => Monitor::Qemu(tool.qemu()?),
    };
    let inspected = match app {
        App::Image(path) => Some(inspect(path)?),
        App::Project { .. } => None,
    };
    let builder = tool.builder()?;
    let (app, file, kind) = match (app, inspected) {
        (App::Image(path), Some(kind)) => {
            let file = path
                .canonicalize()
                .with_context(|| format!("cannot open {}", path.display()))?;
            let name = path.file_name().unwrap_or_default().display().to_string();
            (name, file, kind)
        }
        (app, _) => {
            let (project, file) = build_image(&builder, app)?;
            (project.binary, file, ImageKind::Application)
        }
    };
    Ok(match monitor {
        Monitor::Uhyve(place) => Prepared::Uhyve(UhyveImage {
            app,
            file,
            kind,
            place,
        }),
        Monitor::Qemu(qemu) => Prepared::Image(Image {
            app,
            file,
            kind,
            loader: build_loader(&builder)?,
            qemu,
        }),
    })
}

/// Builds the image of a project.
pub fn build_image(builder: &Builder, app: &App) -> Result<(Project, PathBuf)> {
    let App::Project { directory, binary } = app else {
        bail!("an image file is built already: give a Cargo project");
    };
    let project = resolve_project(&builder.toolchain.cargo, directory, binary.as_deref())?;
    let file = build_app(builder, &project)?;
    Ok((project, file))
}

fn prepare_process(tool: &Tool<'_>, app: &App) -> Result<Process> {
    let App::Project { directory, binary } = app else {
        bail!("an image file cannot run on linux: give the Cargo project it was made from");
    };
    let cargo = tool.host_cargo()?;
    let project = resolve_project(&cargo, directory, binary.as_deref())?;
    let title = format!("building {} for linux", project.binary);
    let target = tool.workspace.image_target().join("linux");
    let mut command = tool.host_cargo_command()?;
    command.arg("build");
    let executable = CargoRun::new(command, &target, &title, tool.verbose)
        .directory(&project.directory)
        .args(["-p", &project.package, "--bin", &project.binary])
        .run(&project.binary)?;
    Ok(Process {
        app: project.binary,
        executable,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::RealHost;
    use crate::host::fake::FakeHost;

    fn workspace() -> Workspace {
        Workspace::locate(&RealHost).unwrap()
    }

    fn tool(host: &FakeHost) -> Tool<'_> {
        Tool {
            host,
            workspace: workspace(),
            choice: Choice::Any,
            verbose: false,
        }
    }

    #[test]
    fn applications_are_told_apart() {
        let root = workspace().root().display().to_string();
        let project = App::resolve(&workspace(), &format!("{root}/cli/Cargo.toml"), None).unwrap();
        assert_eq!(
            project,
            App::Project {
                directory: workspace().root().join("cli"),
                binary: None
            }
        );
        let image = App::resolve(&workspace(), "/proc/self/exe", None).unwrap();
        assert_eq!(image, App::Image("/proc/self/exe".into()));
        let error = |name: &str, binary| {
            App::resolve(&workspace(), name, binary)
                .unwrap_err()
                .to_string()
        };
        assert!(error("no-such-thing", None).contains("'no-such-thing'"));
        assert!(error("/proc/self/exe", Some("x")).contains("--bin"));
    }

    #[test]
    fn a_missing_qemu_is_told_with_its_remedy() {
        let host = FakeHost::default().env("PATH", "/usr/bin");
        let app = App::Image("/proc/self/exe".into());
        let error = prepare(&tool(&host), &app, Platform::Qemu).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("apt-get install qemu-system-x86")
        );
    }

    #[test]
    fn what_cannot_run_is_refused() {
        let host = FakeHost::default().env("PATH", "/usr/bin");
        let app = App::Image("/proc/self/exe".into());
        let error = |platform| {
            prepare(&tool(&host), &app, platform)
                .unwrap_err()
                .to_string()
        };
        assert!(error(Platform::LinuxVm).contains("linux-vm is not available yet"));
        assert!(error(Platform::Linux).contains("cannot run on linux"));
    }
}
