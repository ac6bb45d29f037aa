// Command release makes the files of a release from a clone of the repository. It is what `make
// release`, `make deb` and `make release-changelog` run.
//
//	release build -version v0.1.0     everything, in bin/release/v0.1.0
//	release build -snapshot           the same for a commit without a tag
//	release deb -arch arm64           one package for Debian and Ubuntu, in bin
//	release changelog -version v0.1.0 begins the section of a release in CHANGELOG.md
//
// It runs three programs: git, the go command, and nfpm (.ci/package.mod), which makes packages. A
// release goes through these steps:
//
//	source.go      the commit, its time, and whether it may be released as this version
//	changelog.go   the section of the release
//	build.go       a static binary for each platform, checked by what Go has recorded in it
//	kit.go         manual pages and completions, which a binary of this machine writes
//	archive.go     an archive for each platform; checksums
//	packages.go    deb and rpm
//	sbom.go        the software bill of materials
//	recipe.go      the recipe of the container image
//
// INVARIANT: the same commit gives the same bytes. Nothing that is written depends on the clock,
// the directory, the user, the umask, the time zone, or the times of files: all times are the
// commit's. Compilers and compressors are those of one version of Go, which the Makefile names. The
// go command is run without the user's settings, except those that say where modules are. Only the
// command changelog reads the clock: its result is committed.
package main
