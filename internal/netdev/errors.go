package netdev

import "github.com/rxsteer/rxsteer/internal/ethtool"

// The sentinels of this family are those of package ethtool: both speak generic
// netlink and errno has one meaning.
var (
	ErrNotSupported = ethtool.ErrNotSupported
	ErrNoDevice     = ethtool.ErrNoDevice
	ErrNotFound     = ethtool.ErrNotFound
	ErrPermission   = ethtool.ErrPermission
	ErrMalformed    = ethtool.ErrMalformed
)
