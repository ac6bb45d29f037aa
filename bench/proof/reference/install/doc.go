// Command install builds etcd's programs for the tests that need them, and prints their paths.
// -cache is the directory below which the programs are kept. The default is a directory below the
// user's cache directory, where tests look for the programs.
package main
