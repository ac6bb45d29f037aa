package command

import (
	"bytes"
	"testing"
)

// FuzzGroup: an entry from elsewhere is taken apart, or refused, and never more.
func FuzzGroup(f *testing.F) {
	f.Add([]byte{groupFormat, 2, 1, 0})
	f.Add([]byte{groupFormat, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add([]byte{groupFormat, 2, groupFormat, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var group [][]byte
		if err := Each(data, func(c []byte) error {
			group = append(group, c)
			return nil
		}); err != nil || len(group) < 2 {
			return
		}
		i := 0
		if err := Each(EncodeEntry(group), func(c []byte) error {
			if !bytes.Equal(c, group[i]) {
				t.Errorf("command %d is %x, was %x", i, c, group[i])
			}
			i++
			return nil
		}); err != nil || i != len(group) {
			t.Errorf("%d of %d commands: %v", i, len(group), err)
		}
	})
}
