package links

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ownerOf returns the host whose process has the TCP socket at the given local port of 127.0.0.1.
// ok is false if no host's process has it.
func ownerOf(port int, pids map[Host]int) (h Host, ok bool) {
	file, err := os.Open("/proc/net/tcp")
	if err != nil {
		return 0, false
	}
	defer file.Close()
	inode, ok := socketInode(file, port)
	if !ok {
		return 0, false
	}
	want := "socket:[" + inode + "]"
	for h, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // the process has ended
		}
		for _, entry := range entries {
			if target, err := os.Readlink(filepath.Join(dir, entry.Name())); err == nil &&
				target == want {
				return h, true
			}
		}
	}
	return 0, false
}

// socketInode finds the inode of the socket with a local port of 127.0.0.1 in a table in the format
// of /proc/net/tcp.
func socketInode(table io.Reader, port int) (inode string, ok bool) {
	const localAddress, inodeField = 1, 9
	want := fmt.Sprintf("0100007F:%04X", port)
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) <= inodeField || fields[localAddress] != want {
			continue
		}
		// Sockets in the state TIME_WAIT have no inode any more.
		if n, err := strconv.ParseUint(fields[inodeField], 10, 64); err == nil && n != 0 {
			return fields[inodeField], true
		}
	}
	return "", false
}
