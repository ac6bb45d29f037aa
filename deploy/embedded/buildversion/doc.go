// Package buildversion tells which version of Tidemark a program contains, from what the go command
// records in every binary: the version of the module, and the commit of the repository that it was
// built in.
//
// A version that the build sets by itself (-ldflags "-X main.version=...") is the command's affair;
// this package is asked when there is none, as after `go install`.
package buildversion
