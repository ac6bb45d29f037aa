// Package planted lets a build carry one mistake on purpose, to see whether the proving ground finds it.
//
// A product that passes its tests proves little before the tests are known to fail for a product that is wrong. Each Bug here is a
// mistake that some database has really shipped. A build with the tags `planted` and `planted_NAME` makes that one; any other
// build makes none: Active is a constant, so the compiler leaves nothing of it in the program.
//
//	go test -tags planted,planted_retry_applied_twice ./kv/kvtest/sim -run Planted
//
// With the tags `planted` and `planted_any` the process's environment names the mistake, so that one build serves for all of them.
//
// The place of a bug in the code is one line that asks `planted.Active == planted.X`. To add one: a constant and a row of All
// in bugs.go, a file that makes it the active one, the line in the product, and a row of the harness' table that says what finds it.
package planted
