//go:build !linux

package links

// ownerOf cannot be told here: every connection counts as one of the clients.
func ownerOf(int, map[Host]int) (Host, bool) { return 0, false }
