exports.DEFAULT = {}
