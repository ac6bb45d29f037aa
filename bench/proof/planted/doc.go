// Package planted holds mistakes to build into the product on purpose, to see whether the proving
// ground notices them.
//
// A product that passes its tests proves little before the tests are known to fail for a product
// that is wrong. Each file in patches is a mistake that some database has really shipped, as a
// unified diff; its first lines say what the mistake is. The product itself knows nothing of it:
// Overlay applies the patch to copies of the files, and `go build -overlay` builds with these.
//
//	make planted PLANTED=vote_at_once
//
// To add one: change the product, save `git diff -U4` of it as patches/NAME.patch below a sentence
// that says what is wrong with it (and the line "Noticed by: transactions", if only seeds with
// transactions can notice it), take the change back, and run `make planted PLANTED=NAME`. A mistake
// that the simulated cluster notices once in hours names the test that notices it at once: "Noticed
// by the test: ./kv TestName"; `make planted` runs that test. A hunk applies where its lines stand
// in the file, whatever the line numbers. If the lines are gone, or stand in two places, the test
// of this package fails, and the patch must be made anew.
package planted
