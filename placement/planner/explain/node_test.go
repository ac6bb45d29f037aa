package explain

import "testing"

// What is tolerated is told as a part of the share only where the share is large enough for that.
func TestTolerated(t *testing.T) {
	for _, c := range []struct {
		of   Standing
		want string
	}{
		{Standing{Tolerated: 0.1, Most: "110 MiB"}, "10 % more or less is tolerated"},
		{Standing{Tolerated: 853.16, Most: "64 MiB"}, "anything up to 64 MiB is tolerated"},
	} {
		if got := c.of.tolerated(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.of, got, c.want)
		}
	}
}
