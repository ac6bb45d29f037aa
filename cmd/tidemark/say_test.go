package main

import (
	"bytes"
	"testing"
)

// What is said beside a result has text of others in it, as what a node waits for: nothing that a
// terminal would act on.
func TestWhatIsSaidIsPlain(t *testing.T) {
	var out bytes.Buffer
	a := &app{streams: streams{err: &out}}
	a.say("in the way: %s", "\x1b[2Jnode 3 – 50 %")
	if bytes.ContainsRune(out.Bytes(), '\x1b') ||
		!bytes.HasSuffix(out.Bytes(), []byte("node 3 – 50 %\n")) {
		t.Errorf("%q", out.String())
	}
}
