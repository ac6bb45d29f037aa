package main

import (
	"strings"
	"testing"
)

// A transfer that ended otherwise than with the lead handed over is an error, as a move is.
func TestTheOutcomeOfATransfer(t *testing.T) {
	for _, outcome := range []string{"done", "ended"} {
		if err := handedOver(17, 2, outcome); err != nil {
			t.Errorf("%s: %v", outcome, err)
		}
	}
	for _, outcome := range []string{"cancelled: asked for", "the partition is gone"} {
		if err := handedOver(17, 2, outcome); err == nil || !strings.Contains(err.Error(), outcome) {
			t.Errorf("%s: %v", outcome, err)
		}
	}
}
