-- Wireshark's view of Stellar packets (PROTOCOL.md, section 3): slot 0 on UDP port 4791, slots 1 to 255 on 61001 to 61255.
--
--   wireshark -X lua_script:stellar.lua FILE.pcapng        or copy it to ~/.local/lib/wireshark/plugins/
--
-- RoCEv2 of others on port 4791 is left to Wireshark's own dissector.

local stellar = Proto("stellar", "Stellar RDMA")

local OPCODES = {
    [0xC0] = "HELLO", [0xC1] = "ECHO", [0xC2] = "CLOSE", [0xC3] = "ACK", [0xC4] = "NAK",
    [0xD0] = "WRITE", [0xD1] = "WRITE_IMM", [0xD2] = "SEND", [0xD3] = "SEND_IMM", [0xD4] = "READ_REQUEST",
    [0xD5] = "COMPARE_SWAP", [0xD6] = "FETCH_ADD", [0xE0] = "READ_RESPONSE", [0xE1] = "ATOMIC_RESPONSE",
}
local NAKS = {
    [0] = "RNR", "Key", "Bounds", "Access", "Invalid", "Fault", "ReceiveTooSmall", "TooManyReads", "Failed",
}
local SPACES = { [0] = "request", "response" }
local DATA_BYTES, PREFIX_BYTES = 72, 32

local f = {
    opcode = ProtoField.uint8("stellar.opcode", "Opcode", base.HEX, OPCODES),
    solicited = ProtoField.bool("stellar.solicited", "Solicited event", 8, nil, 0x80),
    qpn = ProtoField.uint24("stellar.qpn", "Destination QP", base.HEX),
    number = ProtoField.uint32("stellar.number", "Number"),
    psn = ProtoField.uint32("stellar.psn", "Packet sequence number"),
    connection = ProtoField.uint64("stellar.connection", "Connection id", base.HEX),
    check = ProtoField.uint32("stellar.check", "Header check", base.HEX),
    layout = ProtoField.uint8("stellar.layout", "Layout", base.DEC, nil, 0xf0),
    flags = ProtoField.uint8("stellar.flags", "Flags", base.HEX, nil, 0x0f),
    path = ProtoField.uint16("stellar.path", "Path"),
    unit_index = ProtoField.uint8("stellar.unit.index", "Index in unit"),
    unit_packets = ProtoField.uint8("stellar.unit.packets", "Packets in unit"),
    transmit = ProtoField.uint32("stellar.transmit", "Transmit number"),
    msn = ProtoField.uint32("stellar.msn", "Message number"),
    length = ProtoField.uint32("stellar.length", "Message length"),
    offset = ProtoField.uint32("stellar.offset", "Offset"),
    part = ProtoField.uint8("stellar.part", "Part"),
    parts = ProtoField.uint8("stellar.parts", "Parts"),
    address = ProtoField.uint64("stellar.address", "Remote address", base.HEX),
    rkey = ProtoField.uint32("stellar.rkey", "R_Key", base.HEX),
    immediate = ProtoField.uint32("stellar.immediate", "Immediate", base.HEX),
    receive = ProtoField.uint32("stellar.receive", "Receive"),
    landed = ProtoField.uint32("stellar.landed", "Landed"),
    read_bytes = ProtoField.uint32("stellar.read.length", "Bytes to read"),
    request = ProtoField.uint32("stellar.request", "Answers request"),
    compare = ProtoField.uint64("stellar.atomic.compare", "Compare", base.HEX),
    swap = ProtoField.uint64("stellar.atomic.swap", "Swap", base.HEX),
    add = ProtoField.uint64("stellar.atomic.add", "Add", base.HEX),
    before = ProtoField.uint64("stellar.atomic.before", "Value before", base.HEX),
    payload_crc = ProtoField.uint32("stellar.payload_crc", "Payload CRC", base.HEX),
    tag = ProtoField.bytes("stellar.tag", "Keyed tag"),
    payload = ProtoField.bytes("stellar.payload", "Payload"),
    cumulative = ProtoField.uint32("stellar.ack.cumulative", "Cumulative"),
    space = ProtoField.uint8("stellar.ack.space", "Numbering", base.DEC, SPACES),
    free_bytes = ProtoField.uint32("stellar.free_bytes", "Free bytes"),
    block_count = ProtoField.uint8("stellar.ack.blocks", "Blocks"),
    unit_count = ProtoField.uint8("stellar.ack.units", "Unit reports"),
    first = ProtoField.uint32("stellar.ack.block.first", "First"),
    last = ProtoField.uint32("stellar.ack.block.end", "End"),
    report_packets = ProtoField.uint8("stellar.ack.unit.packets", "Packets"),
    report_ce = ProtoField.uint8("stellar.ack.unit.ce", "Marked (CE)"),
    report_delay = ProtoField.uint16("stellar.ack.unit.delay", "Delay"),
    nak = ProtoField.uint8("stellar.nak.code", "Code", base.DEC, NAKS),
    rnr_timer = ProtoField.uint8("stellar.nak.rnr_timer", "RNR timer"),
    version = ProtoField.uint8("stellar.version", "Protocol version"),
    reply = ProtoField.bool("stellar.reply", "R", 8, nil, 0x01),
    measuring = ProtoField.bool("stellar.hello.measuring", "M", 8, nil, 0x02),
    paths = ProtoField.uint16("stellar.hello.paths", "Paths of the sender"),
    probe_bytes = ProtoField.uint16("stellar.probe_bytes", "Probe bytes"),
    own = ProtoField.uint64("stellar.hello.connection", "Connection id of the sender", base.HEX),
    own_qpn = ProtoField.uint24("stellar.hello.qpn", "QP of the sender", base.HEX),
    proven_bytes = ProtoField.uint16("stellar.hello.proven_bytes", "Proven bytes"),
    observed_port = ProtoField.uint16("stellar.observed_port", "Observed port"),
    claimed = ProtoField.ipv6("stellar.hello.claimed", "Claimed address"),
    observed = ProtoField.ipv6("stellar.observed", "Observed address"),
    window = ProtoField.uint32("stellar.hello.window", "Window, packets"),
    features = ProtoField.uint32("stellar.hello.features", "Features", base.HEX),
    nonce = ProtoField.uint64("stellar.echo.nonce", "Nonce", base.HEX),
    ttl = ProtoField.uint8("stellar.echo.ttl", "Observed TTL"),
}
stellar.fields = f
local cut = ProtoExpert.new("stellar.cut", "Packet ends before its header", expert.group.MALFORMED, expert.severity.ERROR)
stellar.experts = { cut }

-- A number whose lower 24 bits are at byte 9 and whose upper 8 bits are at byte 25.
local function number(tvb)
    return tvb(25, 1):uint() * 0x1000000 + tvb(9, 3):uint()
end

-- Where fields are: field, first byte, bytes.
local PREFIX = {
    { f.opcode, 0, 1 }, { f.solicited, 1, 1 }, { f.qpn, 5, 3 }, { f.check, 20, 4 }, { f.layout, 24, 1 }, { f.flags, 24, 1 },
}
local DATA = {
    { f.unit_index, 26, 1 }, { f.unit_packets, 27, 1 }, { f.path, 28, 2 }, { f.transmit, 32, 4 }, { f.msn, 36, 4 },
    { f.length, 40, 4 },
}
local PART = { { f.part, 30, 1 }, { f.parts, 31, 1 } }
local OFFSET = { { f.offset, 44, 4 } }
local ACK = {
    { f.block_count, 26, 1 }, { f.unit_count, 27, 1 }, { f.path, 28, 2 }, { f.space, 30, 1 }, { f.landed, 32, 4 },
    { f.free_bytes, 36, 4 },
}
local BLOCK = { { f.first, 0, 4 }, { f.last, 4, 4 } }
local REPORT = {
    { f.transmit, 0, 4 }, { f.path, 4, 2 }, { f.report_packets, 6, 1 }, { f.report_ce, 7, 1 }, { f.report_delay, 8, 2 },
}
local NAK = { { f.nak, 26, 1 }, { f.rnr_timer, 27, 1 }, { f.path, 28, 2 }, { f.msn, 32, 4 } }
local HELLO = {
    { f.version, 26, 1 }, { f.measuring, 27, 1 }, { f.reply, 27, 1 }, { f.paths, 28, 2 }, { f.probe_bytes, 30, 2 },
    { f.own, 32, 8 }, { f.own_qpn, 41, 3 }, { f.proven_bytes, 44, 2 }, { f.observed_port, 46, 2 }, { f.claimed, 48, 16 },
    { f.observed, 64, 16 }, { f.window, 80, 4 }, { f.free_bytes, 84, 4 }, { f.features, 88, 4 },
}
local ECHO = {
    { f.version, 26, 1 }, { f.reply, 27, 1 }, { f.path, 28, 2 }, { f.probe_bytes, 30, 2 }, { f.ttl, 32, 1 },
    { f.observed_port, 34, 2 }, { f.observed, 40, 16 },
}
-- What follows in a data packet, by opcode.
local ADDRESS, RKEY, LANDED = { f.address, 48, 8 }, { f.rkey, 56, 4 }, { f.landed, 68, 4 }
local OPERATIONS = {
    [0xD0] = { ADDRESS, RKEY },
    [0xD1] = { ADDRESS, RKEY, { f.immediate, 60, 4 }, { f.receive, 64, 4 }, LANDED },
    [0xD2] = { { f.receive, 48, 4 }, LANDED },
    [0xD3] = { { f.receive, 48, 4 }, { f.immediate, 52, 4 }, LANDED },
    [0xD4] = { ADDRESS, RKEY, { f.read_bytes, 60, 4 } },
    [0xD5] = { { f.rkey, 44, 4 }, ADDRESS, { f.compare, 56, 8 }, { f.swap, 64, 8 } },
    [0xD6] = { { f.rkey, 44, 4 }, ADDRESS, { f.add, 56, 8 } },
    [0xE0] = { { f.request, 48, 4 } },
    [0xE1] = { { f.request, 48, 4 }, { f.before, 56, 8 } },
}
-- What follows the header, by the flag that says so: field, bytes with reserved ones, bytes.
local EXTRAS = { [1] = { f.payload_crc, 8, 4 }, [2] = { f.tag, 16, 16 } }

local function add(tree, tvb, fields)
    for _, field in ipairs(fields) do
        tree:add(field[1], tvb(field[2], field[3]))
    end
end

local function has(flags, flag)
    return flags % (2 * flag) >= flag
end

local function data(tvb, tree, opcode, flags)
    tree:add(f.psn, tvb(9, 3), number(tvb))
    add(tree, tvb, DATA)
    if has(flags, 4) then
        add(tree, tvb, PART)
    end
    if opcode ~= 0xD5 and opcode ~= 0xD6 then
        add(tree, tvb, OFFSET)
    end
    add(tree, tvb, OPERATIONS[opcode])
    local at = DATA_BYTES
    for flag, extra in ipairs(EXTRAS) do
        if has(flags, flag) and tvb:len() >= at + extra[2] then
            tree:add(extra[1], tvb(at, extra[3]))
            at = at + extra[2]
        end
    end
    if tvb:len() > at then
        tree:add(f.payload, tvb(at))
    end
    return string.format(
        "PSN %u MSN %u path %u unit %u/%u, %u bytes",
        number(tvb), tvb(36, 4):uint(), tvb(28, 2):uint(), tvb(26, 1):uint() + 1, tvb(27, 1):uint(), tvb:reported_len() - at
    )
end

-- Adds `count` records of `bytes` each that begin at `at`, as far as they are there; where they end.
local function records(tvb, tree, at, count, bytes, name, fields)
    for _ = 1, count do
        if tvb:len() < at + bytes then
            break
        end
        local record = tvb(at, bytes)
        add(tree:add(stellar, record, name), record, fields)
        at = at + bytes
    end
    return at
end

local function ack(tvb, tree)
    local blocks, units = tvb(26, 1):uint(), tvb(27, 1):uint()
    tree:add(f.cumulative, tvb(9, 3), number(tvb))
    add(tree, tvb, ACK)
    local at = records(tvb, tree, 40, blocks, 8, "Block", BLOCK)
    records(tvb, tree, at, units, 10, "Unit report", REPORT)
    local space = SPACES[tvb(30, 1):uint()] or "?"
    return string.format(
        "%s up to %u, landed %u, %u blocks, %u units", space, number(tvb), tvb(32, 4):uint(), blocks, units
    )
end

local function nak(tvb, tree)
    add(tree, tvb, NAK)
    return string.format("%s of MSN %u", NAKS[tvb(26, 1):uint()] or "?", tvb(32, 4):uint())
end

local function close()
    return ""
end

local function hello(tvb, tree)
    tree:add(f.psn, tvb(9, 3), number(tvb))
    add(tree, tvb, HELLO)
    return string.format("from QP 0x%06x, %u bytes proven", tvb(41, 3):uint(), tvb(44, 2):uint())
end

local function echo(tvb, tree)
    tree:add(f.number, tvb(9, 3), number(tvb))
    add(tree, tvb, ECHO)
    return string.format("%s %u", tvb(27, 1):uint() % 2 == 1 and "reply" or "probe", number(tvb))
end

-- Header bytes, and who reads on.
local KINDS = {
    [0xC0] = { 96, hello }, [0xC1] = { 56, echo }, [0xC2] = { PREFIX_BYTES, close }, [0xC3] = { 40, ack }, [0xC4] = { 40, nak },
}

local function is_ours(tvb)
    return tvb:len() >= PREFIX_BYTES and OPCODES[tvb(0, 1):uint()] ~= nil and tvb(24, 1):bitfield(0, 4) == 1
end

function stellar.dissector(tvb, pinfo, root)
    if not is_ours(tvb) then
        local roce = Dissector.get("infiniband")
        return roce and roce:call(tvb, pinfo, root) or 0
    end
    local opcode = tvb(0, 1):uint()
    local name = OPCODES[opcode]
    pinfo.cols.protocol = "Stellar"
    local tree = root:add(stellar, tvb(), "Stellar, " .. name)
    add(tree, tvb, PREFIX)
    tree:add(opcode == 0xC1 and f.nonce or f.connection, tvb(12, 8))
    local kind = KINDS[opcode] or { DATA_BYTES, data }
    if tvb:len() < kind[1] then
        tree:add_proto_expert_info(cut)
        pinfo.cols.info = name .. " (cut)"
        return tvb:len()
    end
    local info = kind[2](tvb, tree, opcode, tvb(24, 1):bitfield(4, 4))
    pinfo.cols.info = string.format("%s to QP 0x%06x %s", name, tvb(5, 3):uint(), info)
    return tvb:len()
end

local ports = DissectorTable.get("udp.port")
ports:add(4791, stellar)
ports:add("61001-61255", stellar)
