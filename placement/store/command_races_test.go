package store

import (
	"fmt"
	"testing"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// A command whose answer was lost is not refused for what it has written itself.
func TestAskedAgainAndTooLargeByItself(t *testing.T) {
	c, l := linked(t, 3, nil)
	c.elect(c.members[0])
	lead, o := c.members[0].store, c.members[1].store
	for i := range 4 {
		put(t, lead, fmt.Sprintf("p/%d", i), string(make([]byte, 3<<20)))
	}
	c.members[1].catchUp()
	asked := make(chan struct{}, 10)
	lose := 1
	l.fault = func() (bool, bool, bool) {
		lose--
		asked <- struct{}{}
		return false, lose >= 0, false
	}
	done := make(chan error, 1)
	go func() {
		key, end := PrefixRange([]byte("p/"))
		_, err := o.Execute(t.Context(), writes(Put([]byte("p/x"), make([]byte, 3<<20)),
			&storepb.Op{Op: &storepb.Op_Range{Range: &storepb.Range{Key: key, RangeEnd: end}}}))
		done <- err
	}()
	<-asked
	<-asked // the first answer is lost
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
			c.members[1].catchUp()
		}
	}
}
