package main

import "testing"

func TestSucceeded(t *testing.T) {
	got := succeeded(map[string]int{"get": 3, "put": 4, "ring set": 5, "get deadline": 100,
		"put outcome unknown": 200, "ring set no quorum": 400, "put other: odd": 800})
	if got != 12 {
		t.Errorf("%d operations succeeded, want 12", got)
	}
}
