package etcdmembers

import (
	"testing"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// A member whose state is of before its promotion answers nothing, rather than that it has no vote.
func TestStateOfBeforeThePromotion(t *testing.T) {
	learner := &storepb.Member{Role: storepb.MemberRole_LEARNER}
	voter := &storepb.Member{Role: storepb.MemberRole_VOTER}
	for _, c := range []struct {
		name           string
		self           *storepb.Member
		applied, known uint64
		want           bool
	}{
		{"not a member yet", nil, 9, 7, false},
		{"a voter", voter, 3, 7, true},
		{"a learner in its snapshot, and more in the log", learner, 3, 7, false},
		{"a learner in all that is known", learner, 7, 7, true},
		{"a learner that starts with nothing", learner, 5, 0, true},
	} {
		if got := filled(c.self, c.applied, c.known); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
