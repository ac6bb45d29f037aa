// Command install builds etcd's programs for the tests that need them, and prints where they are.
// -cache is the directory below which they are kept; without it, it is one below the user's cache
// directory, where tests look for them.
package main
