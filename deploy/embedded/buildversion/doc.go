// Package buildversion determines the version of Tidemark in a program, from what the go command
// records in every binary: the version of the module, and the commit of the repository that it was
// built in.
//
// If the build sets a version itself (-ldflags "-X main.version=..."), the command uses that; it
// calls this package only if there is none, as after `go install`.
package buildversion
