package fleet

import (
	"slices"
	"testing"
)

func TestMountsBelow(t *testing.T) {
	const list = `/dev/vda / ext4 rw 0 0
/dev/loop0 /tmp/tidemark-nemesis-1/disks/core1 ext4 rw 0 0
/dev/loop1 /tmp/tidemark-nemesis-1 ext4 rw 0 0
tmpfs /tmp/tidemark-nemesis-12/disks/core1 tmpfs rw 0 0
`
	got := mountsBelow(list, "/tmp/tidemark-nemesis-1/")
	if want := []string{"/tmp/tidemark-nemesis-1/disks/core1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
