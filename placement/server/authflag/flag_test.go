package authflag

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// What a server says of itself decides whether it keeps authentication from being enabled (open),
// and from being acknowledged (behind).
func TestWhatIsInTheWay(t *testing.T) {
	on := &clusterpb.GuardState{Version: 3, On: true}
	said := func(r *clusterpb.GuardReport, unproved error) *report { return &report{r, unproved} }
	knows := func(version uint64, on bool) *clusterpb.GuardReport {
		return &clusterpb.GuardReport{Knows: true, Closes: true,
			Guard: &clusterpb.GuardState{Version: version, On: on}}
	}
	for _, c := range []struct {
		report       *report
		open, behind string
	}{
		{nil, "does not answer", "does not answer"},
		{said(nil, nil), "upgrade it", "upgrade it"},
		{said(&clusterpb.GuardReport{Knows: true}, nil), "--insecure", "does not follow"},
		{said(knows(3, true), status.Error(codes.Unauthenticated, "no proof")), "no proof", ""},
		{said(knows(2, true), nil), "", "does not follow"},
		{said(knows(3, false), nil), "", "does not follow"},
		{said(knows(3, true), nil), "", ""},
	} {
		open, behind := c.report.lacks(on)
		if !strings.Contains(open, c.open) || (open == "") != (c.open == "") ||
			!strings.Contains(behind, c.behind) || (behind == "") != (c.behind == "") {
			t.Errorf("%v: open %q, behind %q", c.report, open, behind)
		}
	}
}

// A mark that the record has been at, or may come to, is no later change that the core has lost.
func TestMarksThatOutrunTheRecord(t *testing.T) {
	record := &clusterpb.GuardState{Version: 3, On: true}
	for _, c := range []struct {
		version uint64
		on      bool
		outruns bool
	}{
		{0, false, false}, {2, false, false}, {3, true, false}, {3, false, true}, {4, true, true},
		{math.MaxUint64, true, false},
	} {
		if got := outruns(&clusterpb.GuardState{Version: c.version, On: c.on}, record); got != c.outruns {
			t.Errorf("%d, %v: %v", c.version, c.on, got)
		}
	}
	if outruns(nil, record) {
		t.Error("no mark outruns the record")
	}
}
