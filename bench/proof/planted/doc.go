// Package planted has deliberate mistakes that can be built into the product, to check that the
// simulated cluster and the tests notice them.
//
// A product that passes its tests proves little until the tests are known to fail for a wrong
// product. Each file in patches is a mistake that some database has really shipped, as a unified
// diff. Its first lines describe the mistake. The product itself does not know of the mistakes:
// Overlay applies the patch to copies of the files, and `go build -overlay` builds with the copies.
//
//	make planted PLANTED=vote_at_once
//
// To add a mistake: change the product, save `git diff -U4` as patches/NAME.patch below a sentence
// that describes the mistake, undo the change, and run `make planted PLANTED=NAME`. Add the line
// "Noticed by: transactions" if only seeds with transactions can notice the mistake. If the
// simulated cluster notices the mistake only once in hours, name a test that notices it at once:
// "Noticed by the test: ./kv TestName"; `make planted` then runs that test.
//
// A hunk applies where its lines occur in the file, whatever the line numbers are. If the lines do
// not occur, or occur twice, the test of this package fails, and the patch must be made again.
package planted
